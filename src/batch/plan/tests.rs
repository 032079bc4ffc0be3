//! Properties of the planner: every item once, limits kept, nothing starves, little padding.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::batch::Priority;
use crate::batch::cost::CostModel;
use crate::clock::Moment;
use crate::limits::BULK_SHARE;

const MAX_AGE: Duration = Duration::from_millis(50);

fn table() -> BucketTable {
    BucketTable::new(&ladder())
}

fn ladder() -> Vec<Bucket> {
    bucket_ladder(512, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT)
}

fn empty() -> WaitingItems {
    WaitingItems::new(table(), &CostModel::default())
}

fn at(milliseconds: u64) -> Moment {
    Moment::START + Duration::from_millis(milliseconds)
}

fn item(sequence: Sequence, tokens: usize, priority: Priority) -> WaitingItem {
    WaitingItem { sequence, tokens, priority, turn: Moment::START }
}

fn waiting(tokens: &[usize]) -> WaitingItems {
    let mut waiting = empty();
    for (sequence, &tokens) in tokens.iter().enumerate() {
        waiting.insert(item(sequence as u64, tokens, Priority::Interactive));
    }
    waiting
}

/// All plans until nothing waits, at a time when nothing is old.
fn drain(tokens: &[usize]) -> Vec<BatchPlan> {
    let mut waiting = waiting(tokens);
    std::iter::from_fn(|| waiting.take(Moment::START, MAX_AGE)).collect()
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
    assert_eq!(plans, [BatchPlan { bucket, items: vec![0] }]);
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

fn example(third: Priority) -> WaitingItems {
    let cost = CostModel {
        floor_us: 0.0,
        fixed_us: 2000.0,
        per_token_us: 100.0,
        per_token_length_us: 0.0,
    };
    let mut waiting = WaitingItems::new(table(), &cost);
    waiting.insert(item(0, 15, Priority::Interactive));
    waiting.insert(item(1, 17, Priority::Interactive));
    waiting.insert(item(2, 120, third));
    waiting
}

#[test]
fn the_example_at_the_head_of_the_module_holds() {
    let mut waiting = example(Priority::Interactive);
    let mut next = || waiting.take(Moment::START, MAX_AGE);
    let first = BatchPlan { bucket: Bucket { rows: 2, length: 24 }, items: vec![0, 1] };
    let second = BatchPlan { bucket: Bucket { rows: 1, length: 128 }, items: vec![2] };
    assert_eq!([next(), next(), next()], [Some(first), Some(second), None]);

    let mut waiting = example(Priority::Bulk);
    let mut batches = 0;
    while waiting.take(Moment::START, MAX_AGE).is_some_and(|plan| plan.items[0] != 2) {
        batches += 1;
        waiting.insert(item(2 * batches + 1, 15, Priority::Interactive));
        waiting.insert(item(2 * batches + 2, 17, Priority::Interactive));
    }
    assert_eq!(batches, 9);
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
    let mut waiting = empty();
    waiting.insert(item(0, 500, Priority::Interactive));
    let later = Moment::START + MAX_AGE;
    for sequence in 1..200 {
        waiting.insert(WaitingItem { turn: later, ..item(sequence, 16, Priority::Interactive) });
    }
    let plan = waiting.take(later, MAX_AGE).expect("something waits");
    assert_eq!(plan.items[0], 0, "{plan:?}");
}

#[test]
fn removed_items_are_never_planned() {
    let mut waiting = waiting(&[10, 20, 30]);
    let gone = item(1, 20, Priority::Interactive);
    assert!(waiting.remove(&gone));
    assert!(!waiting.remove(&gone));
    assert_eq!((waiting.len(), waiting.tokens()), (2, 40));
    let mut seen = Vec::new();
    while let Some(plan) = waiting.take(Moment::START, MAX_AGE) {
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
    assert!(ratio >= 0.9, "{ratio:.3}");
}

/// Plans until `batches` ran, with as many waiting items of each priority as at first; returns the
/// predicted time of those led by interactive and by bulk items.
fn flood(interactive: usize, bulk: usize, batches: usize) -> (f64, f64) {
    let mut waiting = empty();
    let (mut next, mut now) = (0, Moment::START);
    let mut random = fastrand::Rng::with_seed(3);
    let mut priorities = Vec::new();
    let (mut interactive_us, mut bulk_us) = (0.0, 0.0);
    for _ in 0..batches {
        for (priority, wanted) in [(Priority::Interactive, interactive), (Priority::Bulk, bulk)] {
            while waiting.len_of(priority) < wanted {
                let tokens = random.usize(2..=512);
                waiting.insert(WaitingItem { turn: now, ..item(next, tokens, priority) });
                priorities.push(priority);
                next += 1;
            }
        }
        let plan = waiting.take(now, MAX_AGE).expect("something waits");
        let cost = CostModel::default();
        now = now + cost.predict(plan.bucket);
        match priorities[plan.items[0] as usize] {
            Priority::Interactive => interactive_us += cost.predict_us(plan.bucket),
            Priority::Bulk => bulk_us += cost.predict_us(plan.bucket),
        }
    }
    (interactive_us, bulk_us)
}

#[test]
fn bulk_items_have_their_share_of_an_interactive_flood() {
    let (interactive_us, bulk_us) = flood(100, 100, 2000);
    let share = bulk_us / (interactive_us + bulk_us);
    assert!((share - BULK_SHARE).abs() < 0.01, "{share:.3}");
}

#[test]
fn interactive_items_go_first_in_a_bulk_flood() {
    let mut waiting = empty();
    for sequence in 0..1000 {
        waiting.insert(item(sequence, 16 + sequence as usize % 100, Priority::Bulk));
    }
    for (round, now) in (0..50).map(|round| (round, at(1000 + round * 60))) {
        let fresh = WaitingItem { turn: now, ..item(5000 + round, 30, Priority::Interactive) };
        waiting.insert(fresh);
        let plan = waiting.take(now, MAX_AGE).expect("something waits");
        assert_eq!(plan.items[0], fresh.sequence, "{plan:?}");
        let plan = waiting.take(now, MAX_AGE).expect("something waits");
        assert!(plan.items[0] < 1000, "{plan:?}");
    }
}

#[test]
fn rows_that_cost_next_to_nothing_are_filled_with_the_other_priority() {
    let cost = CostModel {
        floor_us: 0.0,
        fixed_us: 10_000.0,
        per_token_us: 1.0,
        per_token_length_us: 0.0,
    };
    let mut waiting = WaitingItems::new(table(), &cost);
    for sequence in 0..5 {
        waiting.insert(item(sequence, 16, Priority::Interactive));
    }
    for (sequence, tokens) in [(5, 17), (6, 8), (7, 16), (8, 14)] {
        waiting.insert(item(sequence, tokens, Priority::Bulk));
    }
    let plan = waiting.take(Moment::START, MAX_AGE).expect("something waits");
    let bucket = Bucket { rows: 12, length: 24 };
    assert_eq!(plan, BatchPlan { bucket, items: vec![0, 1, 2, 3, 4, 5, 7, 8, 6] });
}

/// On a GPU that takes the same time for up to 1,024 tokens.
fn waiting_for_gpu(texts: &[(usize, Priority)]) -> WaitingItems {
    let tokens = MaxBatchTokens::new(8192).expect("in range");
    let ladder = gpu_ladder(512, tokens, MaxBatchRows::DEFAULT, 1024);
    let cost =
        CostModel { floor_us: 1024.0, fixed_us: 0.0, per_token_us: 1.0, per_token_length_us: 0.0 };
    let mut waiting = WaitingItems::new(BucketTable::new(&ladder), &cost);
    for (sequence, &(tokens, priority)) in texts.iter().enumerate() {
        waiting.insert(item(sequence as u64, tokens, priority));
    }
    waiting
}

#[test]
fn texts_that_share_a_run_below_the_floor_are_predicted_to() {
    let texts: Vec<_> = (1..=10).map(|at| (at * 6, Priority::Interactive)).collect();
    let mut waiting = waiting_for_gpu(&texts);
    assert_eq!(waiting.backlog_us(Priority::Interactive), 1024.0);
    assert_eq!(waiting.work_us(None), (1024.0, 1024.0));
    let plan = waiting.take(Moment::START, MAX_AGE).expect("something waits");
    assert_eq!((plan.items.len(), plan.bucket), (10, Bucket { rows: 16, length: 64 }));
}

#[test]
fn what_fills_a_run_below_the_floor_is_not_predicted_twice() {
    let mut texts = vec![(64, Priority::Bulk); 10];
    texts.extend([(16, Priority::Bulk); 70]);
    // Six of the short ones share a run with the longer ones; 64 take a run of their own.
    assert_eq!(waiting_for_gpu(&texts).backlog_us(Priority::Bulk), 2048.0);
    texts.truncate(16);
    assert_eq!(waiting_for_gpu(&texts).backlog_us(Priority::Bulk), 1024.0);
}

#[test]
fn a_run_below_the_floor_is_filled_with_texts_of_any_length() {
    let question = (15, Priority::Interactive);
    let mut long = waiting_for_gpu(&[question, (500, Priority::Bulk)]);
    let plan = long.take(Moment::START, MAX_AGE).expect("something waits");
    assert_eq!(plan, BatchPlan { bucket: Bucket { rows: 2, length: 512 }, items: vec![0, 1] });
    let mut many = vec![(30, Priority::Bulk); 20];
    many.insert(0, question);
    let plan = waiting_for_gpu(&many).take(Moment::START, MAX_AGE).expect("something waits");
    assert_eq!((plan.items.len(), plan.bucket), (21, Bucket { rows: 32, length: 32 }));
    // Beyond the floor each row costs something.
    let mut more = vec![(60, Priority::Bulk); 20];
    more.insert(0, question);
    let plan = waiting_for_gpu(&more).take(Moment::START, MAX_AGE).expect("something waits");
    assert_eq!((plan.items.len(), plan.bucket), (16, Bucket { rows: 16, length: 64 }));
}

#[test]
fn an_earlier_turn_goes_first_whatever_the_arrival() {
    let mut waiting = empty();
    waiting.insert(WaitingItem { turn: at(10), ..item(0, 16, Priority::Bulk) });
    waiting.insert(WaitingItem { turn: at(5), ..item(1, 500, Priority::Bulk) });
    let now = at(10) + MAX_AGE;
    assert_eq!(waiting.take(now, MAX_AGE).map(|plan| plan.items), Some(vec![1]));
}

fn mixed() -> impl Strategy<Value = Vec<(usize, Priority, u64)>> {
    let priority = prop_oneof![Just(Priority::Interactive), Just(Priority::Bulk)];
    prop::collection::vec((2_usize..=512, priority, 0_u64..300), 1..300)
}

/// A processor's cost, or one whose small runs all take the same time.
fn cost() -> impl Strategy<Value = CostModel> {
    let floor_us = prop_oneof![Just(0.0), Just(20_000.0)];
    floor_us.prop_map(|floor_us| CostModel { floor_us, ..CostModel::default() })
}

fn mixed_waiting(
    items: &[(usize, Priority, u64)],
    cost: &CostModel,
) -> (WaitingItems, Vec<WaitingItem>) {
    let mut waiting = WaitingItems::new(table(), cost);
    let all: Vec<WaitingItem> = (0..)
        .zip(items)
        .map(|(sequence, &(tokens, priority, turn_ms))| WaitingItem {
            turn: at(turn_ms),
            ..item(sequence, tokens, priority)
        })
        .collect();
    all.iter().for_each(|&item| waiting.insert(item));
    (waiting, all)
}

proptest! {
    #[test]
    fn every_item_runs_once_within_the_limits(
        items in mixed(),
        cost in cost(),
        now_ms in 0_u64..500,
    ) {
        let (mut waiting, all) = mixed_waiting(&items, &cost);
        let ladder = ladder();
        let mut left: Vec<WaitingItem> = all.clone();
        let mut passed_us = [0.0; 2];
        while let Some(plan) = waiting.take(at(now_ms), MAX_AGE) {
            prop_assert!(ladder.contains(&plan.bucket));
            prop_assert!((1..=plan.bucket.rows).contains(&plan.items.len()));
            let lead = all[plan.items[0] as usize];
            let index = usize::from(lead.priority == Priority::Bulk);
            // The age bound: within a priority, the earliest turn leads once it is old.
            let of_priority = left.iter().filter(|item| item.priority == lead.priority);
            let first = of_priority.min_by_key(|item| (item.turn, item.sequence));
            let first = first.expect("the lead waits");
            prop_assert!(at(now_ms).since(first.turn) < MAX_AGE || first == &lead);
            // Between the priorities: neither waits for more than its share of the other.
            let cost_us = cost.predict_us(plan.bucket);
            let other = 1 - index;
            passed_us[index] = 0.0;
            let other_waits = left.iter().any(|item| item.priority != lead.priority);
            passed_us[other] = if other_waits { passed_us[other] + cost_us } else { 0.0 };
            prop_assert!(passed_us[0] < 200_000.0, "interactive items wait for two bulk batches");
            prop_assert!(passed_us[1] < 100_000.0 / BULK_SHARE, "bulk items are left out");
            for item in plan.items {
                prop_assert!(all[item as usize].tokens <= plan.bucket.length);
                let before = left.len();
                left.retain(|waiting| waiting.sequence != item);
                prop_assert_eq!(left.len(), before - 1, "{} twice", item);
            }
        }
        prop_assert_eq!((left.len(), waiting.len(), waiting.tokens()), (0, 0, 0));
    }

    #[test]
    fn the_same_waiting_items_give_the_same_plans(
        items in mixed(),
        cost in cost(),
        now_ms in 0_u64..500,
    ) {
        let plans = || {
            let (mut waiting, _) = mixed_waiting(&items, &cost);
            std::iter::from_fn(move || waiting.take(at(now_ms), MAX_AGE)).collect::<Vec<_>>()
        };
        prop_assert_eq!(plans(), plans());
    }
}
