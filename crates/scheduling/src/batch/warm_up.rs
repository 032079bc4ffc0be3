//! Which shapes a worker runs before it takes jobs, and which while it has none.
//!
//! A first run costs an engine that compiles nothing for it some milliseconds, whatever the shape
//! is. That is much beside a short text and nothing beside a long one, so the smallest shapes are
//! run first, and long rows one at a time: they show what long texts cost.

use std::time::Duration;

use super::Bucket;
use settings::WarmUp;
use settings::limits::{COMMON_LENGTH, COMMON_TIME};

/// The shapes of a worker, in the order in which they are run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WarmUpPlan {
    /// Before the worker is ready.
    pub first: Vec<Bucket>,
    /// Those of `first` that have not begun by then are run later; `None` waits for all.
    pub first_time: Option<Duration>,
    /// While the worker idles.
    pub later: Vec<Bucket>,
}

impl WarmUpPlan {
    /// The plan for `buckets`, which ascend by length and rows.
    pub fn new(buckets: &[Bucket], choice: WarmUp) -> Self {
        match choice {
            WarmUp::None => Self::default(),
            WarmUp::All => Self { first: buckets.to_vec(), ..Self::default() },
            WarmUp::Common => {
                let is_common = |bucket: &Bucket| bucket.length <= COMMON_LENGTH;
                let (mut first, long): (Vec<Bucket>, Vec<Bucket>) =
                    buckets.iter().partition(|bucket| is_common(bucket));
                first.sort_by_key(|bucket| (bucket.tokens(), bucket.length));
                let later = long.into_iter().filter(|bucket| bucket.rows == 1).collect();
                Self { first, first_time: Some(COMMON_TIME), later }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::plan::Shapes;
    use settings::limits::MaxBatchTokens;

    fn ladder(max_length: usize) -> Vec<Bucket> {
        Shapes::on_cpu(max_length, MaxBatchTokens::DEFAULT).prepared().to_vec()
    }

    fn plan(max_length: usize) -> WarmUpPlan {
        WarmUpPlan::new(&ladder(max_length), WarmUp::Common)
    }

    #[test]
    fn long_lengths_follow_in_doubles_up_to_the_longest() {
        let lengths = |max_length| -> Vec<usize> {
            plan(max_length).later.iter().map(|bucket| bucket.length).collect()
        };
        assert_eq!(lengths(512), Vec::<usize>::new());
        assert_eq!(lengths(520), [520]);
        assert_eq!(lengths(3000), [1024, 2048, 3000]);
        assert_eq!(lengths(8192), [1024, 2048, 4096, 8192]);
        assert!(plan(8192).later.iter().all(|bucket| bucket.rows == 1));
    }

    #[test]
    fn common_shapes_come_first_and_the_smallest_of_them_at_once() {
        let WarmUpPlan { first, first_time, .. } = plan(8192);
        assert_eq!(first[0], Bucket { rows: 1, length: 8 });
        assert!(first.is_sorted_by_key(|bucket| bucket.tokens()));
        let common = ladder(8192).into_iter().filter(|bucket| bucket.length <= COMMON_LENGTH);
        assert_eq!(first.len(), common.count());
        assert_eq!(first_time, Some(COMMON_TIME));
    }

    #[test]
    fn all_and_none_are_what_they_say() {
        let all = WarmUpPlan::new(&ladder(8192), WarmUp::All);
        assert_eq!((all.first, all.first_time, all.later), (ladder(8192), None, Vec::new()));
        assert_eq!(WarmUpPlan::new(&ladder(8192), WarmUp::None), WarmUpPlan::default());
    }
}
