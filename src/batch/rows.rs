//! Rows of a batch while texts are put into them, one behind the other.

use super::Bucket;

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
    /// How many texts lie before it in the row. Its dense vector has this number too.
    pub segment: usize,
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
}

impl Rows {
    /// Empty rows.
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self { length: bucket.length, rows: vec![RowRoom::default(); bucket.rows] }
    }

    /// Puts a text of `tokens` into the first row that has room for it; `None` without such a row.
    pub(crate) fn put(&mut self, tokens: usize) -> Option<Place> {
        let length = self.length;
        // A row that is shorter than TEXT_MIN still holds one text.
        let fits = |row: &RowRoom| {
            row.tokens + tokens <= length
                && (row.texts == 0 || row.taken + tokens.max(TEXT_MIN) <= length)
        };
        let row = self.rows.iter().position(fits)?;
        let found = &mut self.rows[row];
        let place = Place { row, start: found.tokens, segment: found.texts };
        found.tokens += tokens;
        found.taken += tokens.max(TEXT_MIN);
        found.texts += 1;
        Some(place)
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
        let place = |row, start, segment| Some(Place { row, start, segment });
        assert_eq!(rows.put(20), place(0, 0, 0));
        assert_eq!(rows.put(16), place(1, 0, 0));
        assert_eq!(rows.put(12), place(0, 20, 1));
        assert_eq!(rows.put(17), None);
        assert!(!rows.are_full());
        assert_eq!(rows.put(16), place(1, 16, 1));
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
