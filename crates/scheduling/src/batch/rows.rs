//! Rows of a batch while texts are put into them, one behind the other.

use super::{Bucket, TokenIds};

/// A text takes at least so many tokens of a row: a row of `length` tokens gives `length / 8`
/// dense vectors, see [`Bucket::spans`].
pub(crate) const TEXT_MIN: usize = 8;

/// Where a text lies in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its row.
    pub row: usize,
    /// Its first token in the row.
    pub start: usize,
    /// How many texts lie before it in the row.
    pub segment: usize,
    /// The first of its dense vectors in the row.
    pub span: usize,
    /// How many it has.
    pub spans: usize,
}

/// The rows of one batch with what they have left.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    length: usize,
    rows: Vec<RowRoom>,
}

#[derive(Debug, Clone, Copy, Default)]
struct RowRoom {
    /// Tokens of its texts.
    tokens: usize,
    /// Tokens that are taken, at least `TEXT_MIN` for each text.
    taken: usize,
    texts: usize,
    spans: usize,
}

impl Rows {
    /// Empty rows.
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self { length: bucket.length, rows: vec![RowRoom::default(); bucket.rows] }
    }

    /// Puts a text that takes `tokens` of room into the first row that has it; `None` without such
    /// a row. Where the text lies is right for a plain one.
    pub(crate) fn put(&mut self, tokens: usize) -> Option<Place> {
        self.put_parts(tokens, tokens, 1)
    }

    /// Puts a text into the first row that has room for it; `None` without such a row.
    pub(crate) fn put_text(&mut self, text: &TokenIds) -> Option<Place> {
        self.put_parts(text.room(), text.len(), text.spans().len())
    }

    fn put_parts(&mut self, room: usize, tokens: usize, spans: usize) -> Option<Place> {
        let length = self.length;
        // A row that is shorter than TEXT_MIN still holds one text.
        let fits = |row: &RowRoom| match row.texts {
            0 => room <= length,
            _ => row.taken + room.max(TEXT_MIN) <= length,
        };
        let row = self.rows.iter().position(fits)?;
        let found = &mut self.rows[row];
        let (start, segment, span) = (found.tokens, found.texts, found.spans);
        found.tokens += tokens;
        found.taken += room.max(TEXT_MIN);
        found.texts += 1;
        found.spans += spans;
        Some(Place { row, start, segment, span, spans })
    }

    /// Whether no further text fits, however short it is.
    pub(crate) fn are_full(&self) -> bool {
        self.rows.iter().all(|row| row.taken + TEXT_MIN > self.length && row.texts > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lie_behind_each_other_in_the_first_row_with_room() {
        let mut rows = Rows::new(Bucket { rows: 2, length: 32 });
        let place =
            |row, start, segment| Some(Place { row, start, segment, span: segment, spans: 1 });
        assert_eq!(rows.put(20), place(0, 0, 0));
        assert_eq!(rows.put(16), place(1, 0, 0));
        assert_eq!(rows.put(12), place(0, 20, 1));
        assert_eq!(rows.put(17), None);
        assert!(!rows.are_full());
        assert_eq!(rows.put(16), place(1, 16, 1));
        assert!(rows.are_full());
    }

    #[test]
    fn a_text_of_many_parts_takes_room_for_their_vectors() {
        let mut rows = Rows::new(Bucket { rows: 1, length: 40 });
        let parts = TokenIds::new(&[5; 6]).with_parts(&[0..1, 1..2, 2..6]);
        let place =
            |start, segment, span, spans| Some(Place { row: 0, start, segment, span, spans });
        assert_eq!(rows.put_text(&TokenIds::new(&[5; 3])), place(0, 0, 0, 1));
        assert_eq!(rows.put_text(&parts), place(3, 1, 1, 3));
        assert_eq!(rows.put_text(&parts), None);
        assert_eq!(rows.put_text(&TokenIds::new(&[5; 8])), place(9, 2, 4, 1));
        assert!(rows.are_full());
    }

    #[test]
    fn a_row_has_no_more_texts_than_it_gives_vectors() {
        for length in [1, 7, 8, 9, 24, 128, 500] {
            let bucket = Bucket { rows: 1, length };
            let mut rows = Rows::new(bucket);
            let texts = std::iter::from_fn(|| rows.put(1)).count();
            assert_eq!(texts, bucket.spans());
            assert!(rows.are_full());
        }
    }
}
