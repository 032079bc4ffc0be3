//! Collects token ids, and asks now and then whether anybody still waits for them, and whether
//! there is memory for them.

use super::{Span, TokenizeError};

/// Bytes of text after which `wanted` is asked again.
const UNASKED_BYTES_MAX: usize = 8 * 1024;

/// Ids of a text: the first ones are kept, all are counted.
#[derive(Debug)]
pub(super) struct FoundIds {
    pub(super) ids: Vec<u32>,
    kept_max: usize,
    pub(super) count: usize,
    /// Tokens at the start that come from the prompt alone.
    pub(super) prompt_tokens: usize,
    /// Characters of the normal form that still belong to the prompt; none once a token did not.
    prompt_characters: Option<usize>,
    /// Whether the last token is one of unknown characters, which more of them would join.
    is_unknown: bool,
    /// How many characters of the normal form each kept token has; `None` when nobody asks.
    pub(super) lengths: Option<Vec<usize>>,
}

impl FoundIds {
    pub(super) fn new(kept_max: usize) -> Self {
        Self {
            ids: Vec::new(),
            kept_max,
            count: 0,
            prompt_tokens: 0,
            prompt_characters: Some(0),
            is_unknown: false,
            lengths: None,
        }
    }

    pub(super) fn with_lengths(self) -> Self {
        Self { lengths: Some(Vec::new()), ..self }
    }

    /// Says how many characters of what comes next belong to the prompt.
    pub(super) fn expect_prompt(&mut self, characters: usize) {
        self.prompt_characters = self.prompt_characters.map(|_| characters);
    }

    /// Takes the next token. `characters` says how long it is in the normal form.
    #[inline]
    pub(super) fn push(&mut self, id: u32, is_unknown: bool, characters: impl Fn() -> usize) {
        let is_longer = is_unknown && self.is_unknown;
        self.is_unknown = is_unknown;
        if !is_longer {
            if self.ids.len() < self.kept_max {
                self.ids.push(id);
            }
            self.count += 1;
        }
        if self.count <= self.kept_max
            && let Some(lengths) = &mut self.lengths
        {
            match lengths.last_mut().filter(|_| is_longer) {
                Some(length) => *length += characters(),
                None => lengths.push(characters()),
            }
        }
        if let Some(left) = self.prompt_characters {
            self.prompt_characters = left.checked_sub(characters());
            match self.prompt_characters {
                Some(_) => self.prompt_tokens = self.count,
                None if is_longer => self.prompt_tokens = self.prompt_tokens.min(self.count - 1),
                None => {}
            }
        }
    }

    /// Bytes in memory of what was found.
    pub(super) fn held_bytes(&self) -> usize {
        let lengths = self.lengths.as_ref().map_or(0, Vec::capacity);
        size_of::<u32>() * self.ids.capacity() + size_of::<usize>() * lengths
    }

    /// Bytes in memory of the places of what was found, as far as somebody asks for them.
    pub(super) fn span_bytes(&self) -> usize {
        size_of::<Span>() * self.lengths.as_ref().map_or(0, Vec::len)
    }

    /// Unknown characters from here on are another token.
    pub(super) const fn end_unknown(&mut self) {
        self.is_unknown = false;
    }
}

/// Asks from time to time whether the ids are still wanted.
pub(super) struct WantedPoll<'a> {
    wanted: &'a dyn Fn(usize) -> bool,
    unasked_bytes: usize,
    /// What the work holds in memory.
    pub(super) held_bytes: usize,
}

impl<'a> WantedPoll<'a> {
    pub(super) fn new(wanted: &'a dyn Fn(usize) -> bool) -> Self {
        Self { wanted, unasked_bytes: 0, held_bytes: 0 }
    }

    /// Counts bytes that were worked on.
    ///
    /// # Errors
    /// `Unwanted`, as soon as nobody waits.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), TokenizeError> {
        self.unasked_bytes += bytes;
        if self.unasked_bytes >= UNASKED_BYTES_MAX {
            self.unasked_bytes = 0;
            if !(self.wanted)(self.held_bytes) {
                return Err(TokenizeError::Unwanted);
            }
        }
        Ok(())
    }
}
