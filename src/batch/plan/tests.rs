//! Properties of the planner: every item once, limits kept, nothing starves, little padding.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MAX_AGE: Duration = Duration::from_millis(50);

fn table() -> BucketTable {
    BucketTable::new(&ladder())
}

fn ladder() -> Vec<Bucket> {
    bucket_ladder(512, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT)
}

fn waiting(tokens: &[usize]) -> WaitingItems {
    let mut waiting = WaitingItems::new(table());
    for (sequence, &tokens) in tokens.iter().enumerate() {
        waiting.insert(sequence as u64, tokens, Moment::START);
    }
    waiting
}

/// All plans until nothing waits, at a time when nothing is old.
fn drain(tokens: &[usize]) -> Vec<Plan> {
    let mut waiting = waiting(tokens);
    let cost = CostModel::default();
    std::iter::from_fn(|| waiting.take(&cost, Moment::START, MAX_AGE)).collect()
}

#[test]
fn the_ladder_ends_at_the_models_limit_and_keeps_the_budget() {
    for limit in [3, 8, 64, 100, 512, 8192] {
        let ladder = bucket_ladder(limit, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT);
        assert_eq!(ladder.last().map(|bucket| bucket.length), Some(limit));
        for bucket in &ladder {
            let within = bucket.tokens() <= MaxBatchTokens::DEFAULT.as_usize();
            assert!(bucket.rows == 1 || within, "{bucket:?}");
        }
        let unique: BTreeSet<_> = ladder.iter().map(|b| (b.length, b.rows)).collect();
        assert_eq!(unique.len(), ladder.len());
    }
}

#[test]
fn the_most_rows_within_the_budget_are_a_choice() {
    let tokens = MaxBatchTokens::new(512).expect("in range");
    let rows = |length| {
        let ladder = bucket_ladder(512, tokens, MaxBatchRows::DEFAULT);
        let of_length = ladder.into_iter().filter(|bucket| bucket.length == length);
        of_length.map(|bucket| bucket.rows).collect::<Vec<_>>()
    };
    assert_eq!(rows(48), [1, 2, 3, 4, 6, 8, 10]);
    assert_eq!(rows(64), [1, 2, 3, 4, 6, 8]);
    assert_eq!(rows(320), [1]);
}

#[test]
fn one_item_runs_at_once_in_the_smallest_bucket() {
    let plans = drain(&[13]);
    let bucket = Bucket { rows: 1, length: 16 };
    assert_eq!(plans, [Plan { bucket, items: vec![0] }]);
}

#[test]
fn a_short_item_does_not_pay_for_a_long_one() {
    let plans = drain(&[16, 512]);
    assert_eq!(plans.len(), 2, "{plans:?}");
}

#[test]
fn neighbours_share_the_fixed_cost_of_a_run() {
    let plans = drain(&[15, 17]);
    assert_eq!(plans.len(), 1, "{plans:?}");
    assert_eq!(plans[0].bucket, Bucket { rows: 2, length: 24 });
}

#[test]
fn full_batches_come_from_one_class() {
    let lengths: Vec<usize> = (0..400).map(|n| if n % 2 == 0 { 16 } else { 128 }).collect();
    let plans = drain(&lengths);
    for plan in &plans {
        let odd = plan.items.iter().filter(|&&item| item % 2 == 1).count();
        assert!(odd == 0 || odd == plan.items.len(), "{plan:?}");
    }
}

#[test]
fn an_item_over_the_age_bound_leads_the_next_batch() {
    let cost = CostModel::default();
    let mut waiting = WaitingItems::new(table());
    waiting.insert(0, 500, Moment::START);
    let later = Moment::START + MAX_AGE;
    for sequence in 1..200 {
        waiting.insert(sequence, 16, later);
    }
    let plan = waiting.take(&cost, later, MAX_AGE).expect("something waits");
    assert!(plan.items.contains(&0), "{plan:?}");
}

#[test]
fn removed_items_are_never_planned() {
    let mut waiting = waiting(&[10, 20, 30]);
    assert!(waiting.remove(1));
    assert!(!waiting.remove(1));
    assert_eq!((waiting.len(), waiting.tokens()), (2, 40));
    let cost = CostModel::default();
    let mut seen = Vec::new();
    while let Some(plan) = waiting.take(&cost, Moment::START, MAX_AGE) {
        seen.extend(plan.items);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 2]);
}

#[test]
fn little_is_padded_when_much_waits() {
    // Lengths of short texts with a tail, as in a multilingual corpus: 46 tokens on average.
    let mut random = fastrand::Rng::with_seed(7);
    let lengths: Vec<usize> = (0..1000)
        .map(|_| {
            let tail = -(1.0 - random.f64()).ln();
            (8.0 + 38.0 * tail) as usize
        })
        .map(|tokens| tokens.min(512))
        .collect();
    let plans = drain(&lengths);
    let padded: usize = plans.iter().map(|plan| plan.bucket.tokens()).sum();
    let real: usize = lengths.iter().sum();
    let ratio = real as f64 / padded as f64;
    assert!(ratio >= 0.88, "{ratio:.3}");
}

proptest! {
    #[test]
    fn every_item_runs_once_within_the_limits(
        lengths in prop::collection::vec(2_usize..=512, 1..300),
        age_ms in 0_u64..100,
    ) {
        let mut waiting = waiting(&lengths);
        let cost = CostModel::default();
        let now = Moment::START + Duration::from_millis(age_ms);
        let ladder = ladder();
        let mut seen = BTreeSet::new();
        let mut oldest = 0;
        while let Some(plan) = waiting.take(&cost, now, MAX_AGE) {
            prop_assert!(ladder.contains(&plan.bucket));
            prop_assert!((1..=plan.bucket.rows).contains(&plan.items.len()));
            if age_ms >= 50 {
                prop_assert!(plan.items.contains(&oldest), "the oldest leads");
            }
            for item in plan.items {
                prop_assert!(lengths[item as usize] <= plan.bucket.length);
                prop_assert!(seen.insert(item), "{item} twice");
            }
            while seen.contains(&oldest) {
                oldest += 1;
            }
        }
        prop_assert_eq!(seen.len(), lengths.len());
        prop_assert_eq!(waiting.tokens(), 0);
    }

    #[test]
    fn the_same_waiting_items_give_the_same_plans(
        lengths in prop::collection::vec(2_usize..=512, 1..100),
    ) {
        prop_assert_eq!(drain(&lengths), drain(&lengths));
    }
}
