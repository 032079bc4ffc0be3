//! What runs next: from waiting lengths to a batch.
//!
//! A plan is judged by its *waste*: its predicted time less what its items would cost if each
//! length class ran on its own. Padding and half-empty rows make it positive, sharing the fixed
//! cost of a run makes it negative. While no item is older than the age bound, the least waste
//! wins; then the oldest item leads, whatever it wastes. So nothing starves, and an idle worker
//! never waits.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::batch::Bucket;
use crate::batch::cost::CostModel;
use crate::clock::Moment;
use crate::limits::{MaxBatchRows, MaxBatchTokens};

/// Rows that a batch may have; steps of at most a half waste at most a third of the rows.
const ROWS: [usize; 18] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024, 2048, 4096];

/// Every shape that a model of `max_length` tokens is run with, ascending by length and rows.
///
/// Lengths step by 8 to 64, by 16 to 128, by 32 to 256, then by 64. A batch stays within both
/// limits, but one row may always run; the most rows within them are always among the choices.
pub fn bucket_ladder(
    max_length: usize,
    max_tokens: MaxBatchTokens,
    max_rows: MaxBatchRows,
) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    for length in lengths(max_length) {
        let most = (max_tokens.as_usize() / length).clamp(1, max_rows.as_usize());
        let fewer = ROWS.into_iter().take_while(|&rows| rows < most);
        buckets.extend(fewer.chain([most]).map(|rows| Bucket { rows, length }));
    }
    buckets
}

fn lengths(max_length: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut length = 8;
    while length < max_length {
        lengths.push(length);
        length += match length {
            ..64 => 8,
            64..128 => 16,
            128..256 => 32,
            _ => 64,
        };
    }
    lengths.push(max_length);
    lengths
}

/// All buckets of one length.
#[derive(Debug, Clone)]
struct LengthClass {
    length: usize,
    /// Ascending.
    rows: Vec<usize>,
}

impl LengthClass {
    fn max_rows(&self) -> usize {
        *self.rows.last().expect("a class is made from at least one bucket")
    }

    /// The smallest bucket that holds `items`, or the largest there is.
    fn bucket(&self, items: usize) -> Bucket {
        let rows = self.rows.iter().copied().find(|&rows| rows >= items);
        Bucket { rows: rows.unwrap_or_else(|| self.max_rows()), length: self.length }
    }
}

/// The engine's buckets by length.
#[derive(Debug, Clone)]
pub struct BucketTable {
    classes: Vec<LengthClass>,
}

impl BucketTable {
    /// Sorts the buckets; their order does not matter.
    pub fn new(buckets: &[Bucket]) -> Self {
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for bucket in buckets {
            by_length.entry(bucket.length).or_default().push(bucket.rows);
        }
        let class = |(length, mut rows): (usize, Vec<usize>)| {
            rows.sort_unstable();
            LengthClass { length, rows }
        };
        Self { classes: by_length.into_iter().map(class).collect() }
    }

    /// Longest item that can be run; 0 without any bucket.
    pub fn max_length(&self) -> usize {
        self.classes.last().map_or(0, |class| class.length)
    }

    /// The class of the shortest bucket that an item of `tokens` fits; the last for a longer one.
    fn class_of(&self, tokens: usize) -> usize {
        let class = self.classes.partition_point(|class| class.length < tokens);
        class.min(self.classes.len().saturating_sub(1))
    }

    /// The smallest bucket for one item.
    pub fn single(&self, tokens: usize) -> Bucket {
        self.classes[self.class_of(tokens)].bucket(1)
    }
}

/// Arrival number of an item: smaller is older, unique.
pub type Sequence = u64;

/// Waiting items by length class and arrival.
#[derive(Debug)]
pub struct WaitingItems {
    table: BucketTable,
    by_class: Vec<BTreeMap<Sequence, usize>>,
    by_age: BTreeMap<Sequence, (usize, Moment)>,
    tokens: usize,
}

/// The next batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub bucket: Bucket,
    /// At least one, at most `bucket.rows`; each fits `bucket.length`.
    pub items: Vec<Sequence>,
}

/// A batch under consideration: the lead, then the oldest of `class` and of shorter classes.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    lead: Sequence,
    class: usize,
    items: usize,
    bucket: Bucket,
    waste_us: f64,
}

impl WaitingItems {
    /// Nothing waits.
    ///
    /// # Panics
    /// Without any bucket: an engine that can run nothing is a mistake of this crate.
    pub fn new(table: BucketTable) -> Self {
        assert!(!table.classes.is_empty(), "an engine has at least one bucket");
        let by_class = table.classes.iter().map(|_| BTreeMap::new()).collect();
        Self { table, by_class, by_age: BTreeMap::new(), tokens: 0 }
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Tokens that wait, without padding.
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// The shapes items are planned into.
    pub const fn table(&self) -> &BucketTable {
        &self.table
    }

    /// Adds an item; `sequence` must be new.
    pub fn insert(&mut self, sequence: Sequence, tokens: usize, since: Moment) {
        let class = self.table.class_of(tokens);
        self.by_class[class].insert(sequence, tokens);
        self.by_age.insert(sequence, (class, since));
        self.tokens += tokens;
    }

    /// Takes an item out; false when it does not wait.
    pub fn remove(&mut self, sequence: Sequence) -> bool {
        let Some((class, _)) = self.by_age.remove(&sequence) else { return false };
        let tokens = self.by_class[class].remove(&sequence).unwrap_or(0);
        self.tokens -= tokens;
        true
    }

    /// Predicted time to run everything that waits, each class on its own, in microseconds.
    pub fn backlog_us(&self, cost: &CostModel) -> f64 {
        let classes = self.table.classes.iter().zip(&self.by_class);
        classes
            .map(|(class, waiting)| {
                let full = waiting.len() / class.max_rows();
                let rest = waiting.len() % class.max_rows();
                let full_us = full as f64 * cost.predict_us(class.bucket(class.max_rows()));
                full_us + if rest > 0 { cost.predict_us(class.bucket(rest)) } else { 0.0 }
            })
            .sum()
    }

    /// Takes the next batch out; `None` when nothing waits.
    pub fn take(&mut self, cost: &CostModel, now: Moment, max_age: Duration) -> Option<Plan> {
        let (&oldest, &(oldest_class, since)) = self.by_age.first_key_value()?;
        let share_us = self.share_us(cost);
        let candidate = if now.since(since) >= max_age {
            self.led_by(oldest, oldest_class, cost, &share_us)
        } else {
            let leads = self.by_class.iter().enumerate();
            leads
                .filter_map(|(class, waiting)| Some((class, *waiting.first_key_value()?.0)))
                .map(|(class, lead)| self.led_by(lead, class, cost, &share_us))
                .min_by(|a, b| a.waste_us.total_cmp(&b.waste_us).then(a.lead.cmp(&b.lead)))?
        };
        let items = self.chosen(&candidate);
        for &item in &items {
            self.remove(item);
        }
        Some(Plan { bucket: candidate.bucket, items })
    }

    /// For each class: what one of its items would cost if the class ran on its own.
    fn share_us(&self, cost: &CostModel) -> Vec<f64> {
        let classes = self.table.classes.iter().zip(&self.by_class);
        classes
            .map(|(class, waiting)| {
                let items = waiting.len().clamp(1, class.max_rows());
                cost.predict_us(class.bucket(items)) / items as f64
            })
            .collect()
    }

    /// The least waste of all batches that contain `lead`: for each length at or above its own, and
    /// each number of rows.
    fn led_by(
        &self,
        lead: Sequence,
        lead_class: usize,
        cost: &CostModel,
        share_us: &[f64],
    ) -> Candidate {
        let mut best: Option<Candidate> = None;
        for class in lead_class..self.table.classes.len() {
            if class > lead_class && self.by_class[class].is_empty() {
                continue;
            }
            for candidate in self.of_length(lead, lead_class, class, share_us) {
                let waste_us = cost.predict_us(candidate.bucket) + candidate.waste_us;
                let better = best.is_none_or(|best| {
                    waste_us < best.waste_us
                        || (waste_us == best.waste_us && candidate.items > best.items)
                });
                if better {
                    best = Some(Candidate { waste_us, ..candidate });
                }
            }
        }
        best.expect("the lead alone is a candidate")
    }

    /// Batches of one length with the lead, one for each number of rows that can be filled; their
    /// waste holds only what their items save.
    fn of_length(
        &self,
        lead: Sequence,
        lead_class: usize,
        class: usize,
        share_us: &[f64],
    ) -> Vec<Candidate> {
        let shape = &self.table.classes[class];
        let mut candidates = Vec::new();
        let mut saved_us = share_us[lead_class];
        let mut items = 1;
        let mut source = class;
        let mut left = self.others(source, lead_class);
        for &rows in &shape.rows {
            // Fill up to `rows` from this class, then from shorter ones.
            while items < rows {
                if left == 0 {
                    if source == 0 {
                        break;
                    }
                    source -= 1;
                    left = self.others(source, lead_class);
                    continue;
                }
                let taken = left.min(rows - items);
                saved_us += taken as f64 * share_us[source];
                items += taken;
                left -= taken;
            }
            let bucket = Bucket { rows, length: shape.length };
            candidates.push(Candidate { lead, class, items, bucket, waste_us: -saved_us });
            if items < rows {
                break;
            }
        }
        candidates
    }

    /// Items of a class besides the lead.
    fn others(&self, class: usize, lead_class: usize) -> usize {
        self.by_class[class].len() - usize::from(class == lead_class)
    }

    fn chosen(&self, candidate: &Candidate) -> Vec<Sequence> {
        let classes = self.by_class[..=candidate.class].iter().rev();
        let others = classes.flat_map(BTreeMap::keys).copied();
        let others = others.filter(|&item| item != candidate.lead).take(candidate.items - 1);
        [candidate.lead].into_iter().chain(others).collect()
    }
}

#[cfg(test)]
mod tests;
