//! Rows of texts that have run, so that a repeated text need not run again.
//!
//! The key of a row is a digest of what the model would get: token ids, and the spans with a vector
//! each. Neither these nor the text are kept. A digest is 128 bits of the standard library's keyed
//! hash (SipHash) under a random key that never leaves the process. So nobody can construct two
//! texts with one digest, and chance does not produce them. A scheduler has one model in one
//! precision, so nothing else belongs to the digest.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Serialize;

use super::incidents::Counter;
use scheduling::batch::{TokenIds, Vectors};
use scheduling::state::Digest;
use settings::limits::CacheBytes;
use vectors::ItemRows;

/// Memory of an entry besides its numbers: its digest, its places in the cache's lists and table,
/// the cache's memory of dropped rows, and the allocator's overhead.
const ENTRY_BYTES: u64 = 256;

/// The usual bytes of an entry, for which the cache plans its tables.
const ENTRY_BYTES_LIKELY: u64 = 2048;

#[derive(Debug, Default)]
pub(super) struct Digester(RandomState);

impl Digester {
    pub(super) fn digest(&self, text: &TokenIds) -> Digest {
        // The two halves hash different inputs under one key, so they are independent.
        let half = |number: u8| u128::from(self.0.hash_one((number, text)));
        Digest(half(0) << 64 | half(1))
    }
}

/// Rows by their digests, as many as fit.
#[derive(Debug)]
pub(super) struct RowCache {
    rows: Cache<Digest, KeptRow, RowWeighter>,
    hits: Counter,
    misses: Counter,
}

#[derive(Debug, Clone)]
struct KeptRow {
    /// The dense vectors, then the weights.
    numbers: Arc<[f32]>,
    /// Floats of the dense vectors.
    dense: usize,
    /// Of a model that weighs any words, those with the weights.
    words: Option<Arc<[u32]>>,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct CacheFigures {
    /// Its room as configured; 0 without a cache.
    pub(crate) limit_bytes: u64,
    /// Memory of the entries.
    pub(crate) bytes: u64,
    /// Texts with rows in the cache.
    pub(crate) entries: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl RowCache {
    /// `None` without room.
    pub(super) fn new(room: CacheBytes) -> Option<Self> {
        let bytes = room.get();
        let entries = usize::try_from(bytes / ENTRY_BYTES_LIKELY).unwrap_or(usize::MAX).max(1);
        (bytes > 0).then(|| Self {
            rows: Cache::with_weighter(entries, bytes, RowWeighter),
            hits: Counter::default(),
            misses: Counter::default(),
        })
    }

    /// The wanted rows of a text. Counts a hit or a miss.
    pub(super) fn find(&self, digest: Digest, wanted: Vectors) -> Option<ItemRows> {
        let found = self.rows.get(&digest);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.add(1);
        let KeptRow { numbers, dense, words } = found?;
        let (dense, weights) = numbers.split_at(dense);
        let part = |wanted: bool, part: &[f32]| if wanted { part.to_vec() } else { Vec::new() };
        Some(ItemRows {
            dense: part(wanted.dense(), dense),
            weights: part(wanted.sparse(), weights),
            words: words
                .filter(|_| wanted.sparse())
                .map(|words| words.to_vec())
                .unwrap_or_default(),
            token_vectors: Vec::new(),
        })
    }

    /// Puts both rows of a text into the cache.
    pub(super) fn keep(&self, digest: Digest, rows: &ItemRows) {
        let ItemRows { dense, weights, words, .. } = rows;
        let numbers = dense.iter().chain(weights).copied().collect();
        let words = (!words.is_empty()).then(|| words.as_slice().into());
        self.rows.insert(digest, KeptRow { numbers, dense: dense.len(), words });
    }

    pub(super) fn figures(&self) -> CacheFigures {
        CacheFigures {
            limit_bytes: self.rows.capacity(),
            bytes: self.rows.weight(),
            entries: self.rows.len() as u64,
            hits: self.hits.get(),
            misses: self.misses.get(),
        }
    }
}

#[derive(Debug, Clone)]
struct RowWeighter;

impl Weighter<Digest, KeptRow> for RowWeighter {
    fn weight(&self, _: &Digest, row: &KeptRow) -> u64 {
        let words = row.words.as_deref().map_or(0, size_of_val);
        ENTRY_BYTES + (size_of_val(&*row.numbers) + words) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::job::only;

    const DENSE: usize = 64;
    const TOKENS: usize = 8;

    fn rows(seed: usize) -> ItemRows {
        let numbers = |count: usize| (0..count).map(|place| (seed + place) as f32).collect();
        ItemRows { dense: numbers(DENSE), weights: numbers(TOKENS), ..ItemRows::default() }
    }

    fn cache(bytes: u64) -> RowCache {
        RowCache::new(CacheBytes::new(bytes).expect("in range")).expect("it has room")
    }

    #[test]
    fn the_same_ids_have_the_same_digest_and_others_have_others() {
        let digester = Digester::default();
        let lists: [&[u32]; 6] = [&[], &[0], &[0, 0], &[0, 7, 2], &[7, 0, 2], &[0, 7, 3]];
        let mut texts = lists.map(TokenIds::new).to_vec();
        for ends in [&[3][..], &[2], &[2, 3]] {
            let parts: Vec<_> = ends.iter().map(|&end| 0..end).collect();
            texts.push(TokenIds::new(&[0, 7, 2]).with_parts(&parts));
        }
        for (place, text) in texts.iter().enumerate() {
            assert_eq!(digester.digest(text), digester.digest(text));
            for other in &texts[..place] {
                assert_ne!(digester.digest(text), digester.digest(other));
            }
        }
        let text = TokenIds::new(&[0, 7, 2]);
        let halves = digester.digest(&text).0;
        assert_ne!(halves >> 64, halves & u128::from(u64::MAX));
        assert_ne!(Digester::default().digest(&text), digester.digest(&text), "the key is random");
    }

    #[test]
    fn a_kept_row_gives_the_vectors_that_are_wanted() {
        let (cache, digest) = (cache(1 << 20), Digest(7));
        assert_eq!(cache.find(digest, Vectors::Both), None);
        let of_words = ItemRows { words: (0..TOKENS as u32).collect(), ..rows(1) };
        for kept in [rows(1), of_words] {
            cache.keep(digest, &kept);
            for wanted in [Vectors::Both, Vectors::Dense, Vectors::Sparse] {
                assert_eq!(cache.find(digest, wanted), Some(only(kept.clone(), wanted)));
            }
        }
        let CacheFigures { entries, bytes, hits, misses, .. } = cache.figures();
        assert_eq!((entries, hits, misses), (1, 6, 1));
        assert_eq!(bytes, ENTRY_BYTES + 4 * (DENSE + 2 * TOKENS) as u64);
    }

    #[test]
    fn the_cache_stays_within_its_bytes_and_keeps_what_is_asked_for() {
        let (cache, often) = (cache(1 << 18), Digest(u128::MAX));
        cache.keep(often, &rows(0));
        for text in 0..10_000 {
            cache.keep(Digest(text), &rows(text as usize));
            assert!(cache.find(often, Vectors::Dense).is_some(), "after {text} texts");
            let CacheFigures { bytes, limit_bytes, .. } = cache.figures();
            assert!(bytes <= limit_bytes, "{bytes} of {limit_bytes}");
        }
        let CacheFigures { entries, bytes, .. } = cache.figures();
        assert_eq!(bytes, entries * (ENTRY_BYTES + 4 * (DENSE + TOKENS) as u64));
        assert!(entries > 300, "the room is used: {entries}");
    }

    #[test]
    fn nothing_is_kept_without_room() {
        assert!(RowCache::new(CacheBytes::DEFAULT).is_none());
    }
}
