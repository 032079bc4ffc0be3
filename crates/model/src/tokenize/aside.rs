//! Pieces of long stretches of text without a certain boundary, such as a million times `a`.

/// Entries of a block. Blocks are never copied to grow, which would need twice the memory.
const BLOCK: usize = 16 * 1024;

/// For each character the piece that ends behind it on the best path to there: 4 bytes each.
#[derive(Debug, Default)]
pub(super) struct Aside {
    blocks: Vec<Vec<u32>>,
}

impl Aside {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.len())
    }

    pub(super) fn push(&mut self, id: u32) {
        match self.blocks.last_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(id),
            None => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(id);
                self.blocks.push(block);
            }
        }
    }

    /// Hands out the pieces of the best path to a character, and forgets everything. `length` is
    /// how many characters a piece has.
    pub(super) fn take(
        &mut self,
        characters: usize,
        length: impl Fn(u32) -> usize,
        mut hand_out: impl FnMut(u32),
    ) {
        // On the way back each piece of the path is noted where it starts: there is no other list.
        let mut end = characters;
        while end > 0 {
            let id = *self.at(end - 1);
            end -= length(id);
            *self.at(end) = id;
        }
        let mut start = 0;
        while start < characters {
            let id = *self.at(start);
            hand_out(id);
            start += length(id);
        }
        self.blocks = Vec::new();
    }

    fn at(&mut self, character: usize) -> &mut u32 {
        &mut self.blocks[character / BLOCK][character % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_to_a_character_comes_out_from_its_start() {
        // An id is also its length here.
        let mut aside = Aside::default();
        assert!(aside.is_empty());
        let ends = (0..2 * BLOCK + 5).map(|character| if character % 3 == 2 { 3 } else { 1 });
        ends.for_each(|id| aside.push(id));
        assert_eq!(aside.len(), 2 * BLOCK + 5);
        let mut found = Vec::new();
        aside.take(2 * BLOCK + 1, |id| id as usize, |id| found.push(id));
        let threes = (2 * BLOCK + 1) / 3;
        assert_eq!(found[..threes], vec![3; threes]);
        assert_eq!(found.len() - threes, (2 * BLOCK + 1) % 3);
        assert!(aside.is_empty());
    }
}
