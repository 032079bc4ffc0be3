//! Properties of the planner: every item runs once and in order, the shape is the best one, limits
//! are kept, and nothing starves.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::batch::Priority;
use crate::batch::cost::CostModel;
use clock::Moment;
use settings::limits::BULK_SHARE;

fn shapes() -> Shapes {
    Shapes::on_cpu(512, MaxBatchTokens::DEFAULT)
}

fn empty() -> WaitingItems {
    WaitingItems::new(shapes(), &CostModel::default())
}

fn at(milliseconds: u64) -> Moment {
    Moment::START + Duration::from_millis(milliseconds)
}

/// Where an item of the first turn stands.
fn rank(sequence: Sequence, priority: Priority) -> Rank {
    (priority, Moment::START, sequence)
}

/// The next batch without other limits than the shapes'.
fn take(waiting: &mut WaitingItems) -> Option<BatchPlan> {
    waiting.take(usize::MAX, f64::INFINITY)
}

fn line(per_token_us: f64, fixed_us: f64, floor_us: f64) -> CostModel {
    CostModel { floor_us, fixed_us, per_token_us, per_token_length_us: 0.0 }
}

fn add(waiting: &mut WaitingItems, priority: Priority, tokens: &[usize]) {
    let first = waiting.len() as u64;
    for (sequence, &tokens) in (first..).zip(tokens) {
        waiting.insert(rank(sequence, priority), tokens);
    }
}

/// All plans until nothing waits.
fn drain(tokens: &[usize]) -> Vec<BatchPlan> {
    let mut waiting = empty();
    add(&mut waiting, Priority::Interactive, tokens);
    std::iter::from_fn(|| take(&mut waiting)).collect()
}

fn tokens(max_tokens: u64) -> MaxBatchTokens {
    MaxBatchTokens::new(max_tokens).expect("in range")
}

#[test]
fn there_are_few_shapes_that_end_at_the_models_limit() {
    for limit in [3, 8, 64, 100, 128, 129, 512, 4096, 8192] {
        for max_tokens in [256, 512, 1024, 2048, 4096, 8192] {
            let most = tokens(max_tokens);
            for shapes in [Shapes::on_cpu(limit, most), Shapes::on_gpu(limit, most)] {
                assert_eq!(shapes.max_length(), limit);
                let fits = |shape: &Bucket| shape.rows == 1 || shape.tokens() <= most.as_usize();
                assert!(shapes.prepared().iter().all(fits), "{shapes:?}");
                for length in 1..=limit {
                    assert!((length..=limit.max(8)).contains(&shapes.row(length).length));
                }
            }
            assert!(max_tokens > 2048 || Shapes::on_cpu(limit, most).prepared().len() <= 30);
            assert!(Shapes::on_gpu(limit, most).prepared().len() <= 25);
        }
    }
}

#[test]
fn a_lone_text_has_a_row_of_its_own_length() {
    let lengths = |shapes: Shapes| [1, 9, 127, 129, 300, 513, 7000].map(|n| shapes.row(n).length);
    let most = MaxBatchTokens::DEFAULT;
    assert_eq!(lengths(Shapes::on_cpu(8192, most)), [8, 16, 128, 160, 320, 640, 7040]);
    assert_eq!(lengths(Shapes::on_gpu(8192, most)), [16, 16, 128, 256, 512, 1024, 8192]);
}

#[test]
fn the_example_at_the_head_of_the_module_holds() {
    let cost = CostModel { per_token_length_us: 0.05, ..line(100.0, 2000.0, 0.0) };
    let mut waiting = WaitingItems::new(shapes(), &cost);
    add(&mut waiting, Priority::Interactive, &[20, 100, 30, 90]);
    let (bucket, items) = (Bucket { rows: 2, length: 128 }, vec![0, 1, 2, 3]);
    assert_eq!(take(&mut waiting), Some(BatchPlan { bucket, items }));
}

#[test]
fn a_batch_is_no_longer_than_its_part_or_its_first_text() {
    for (part, items) in [(1, 1), (48, 1), (96, 2), (128, 3), (usize::MAX, 6)] {
        let mut waiting = empty();
        add(&mut waiting, Priority::Interactive, &[40; 9]);
        let plan = waiting.take(part, f64::INFINITY).expect("something waits");
        assert_eq!(plan.items.len(), items, "{part}");
    }
}

#[test]
fn a_small_part_is_exceeded_where_that_takes_no_time() {
    let plan =
        on_gpu(&[(100, Priority::Bulk); 20]).take(200, f64::INFINITY).expect("something waits");
    assert_eq!(plan.bucket, Bucket { rows: 8, length: 128 });
}

#[test]
fn a_text_a_batch_can_be_asked_for() {
    let shapes = Shapes::on_cpu(64, tokens(8));
    let mut waiting = WaitingItems::new(shapes, &CostModel::default());
    add(&mut waiting, Priority::Bulk, &[3, 5, 40, 8]);
    let plans: Vec<_> = std::iter::from_fn(|| take(&mut waiting)).map(|plan| plan.items).collect();
    assert_eq!(plans, [[0], [1], [2], [3]]);
}

#[test]
fn what_waits_is_predicted_about_as_it_runs() {
    let mut random = fastrand::Rng::with_seed(9);
    let cost = CostModel::default();
    for (count, longest) in [(1, 100), (3, 40), (40, 60), (300, 100), (50, 500)] {
        let lengths: Vec<usize> = (0..count).map(|_| random.usize(5..=longest)).collect();
        let mut waiting = empty();
        add(&mut waiting, Priority::Bulk, &lengths);
        let us = waiting.backlog_us(Priority::Bulk);
        let ran: f64 = drain(&lengths).iter().map(|plan| cost.predict_us(plan.bucket)).sum();
        assert!((us / ran - 1.0).abs() < 0.25, "{count} of {longest}: {us} for {ran}");
    }
}

#[test]
fn bulk_items_have_their_share_of_an_interactive_flood() {
    let (mut waiting, mut next, mut priorities) = (empty(), 0, Vec::new());
    let mut random = fastrand::Rng::with_seed(3);
    let mut us = [0.0; 2];
    for _ in 0..2000 {
        for priority in [Priority::Interactive, Priority::Bulk] {
            while waiting.len_of(priority) < 100 {
                waiting.insert(rank(next, priority), random.usize(2..=512));
                priorities.push(priority);
                next += 1;
            }
        }
        let plan = take(&mut waiting).expect("something waits");
        let lead = priorities[plan.items[0] as usize];
        us[lead as usize] += CostModel::default().predict_us(plan.bucket);
    }
    let share = us[Priority::Bulk as usize] / (us[0] + us[1]);
    assert!((share - BULK_SHARE).abs() < 0.02, "{share:.3}");
}

#[test]
fn interactive_items_go_first_in_a_bulk_flood() {
    let mut waiting = empty();
    add(&mut waiting, Priority::Bulk, &[100; 1000]);
    for round in 0..50 {
        waiting.insert(rank(5000 + round, Priority::Interactive), 30);
        assert_eq!(take(&mut waiting).expect("something waits").items[0], 5000 + round);
        assert!(take(&mut waiting).expect("something waits").items[0] < 1000);
    }
}

/// On a GPU that takes the same time for up to 1,024 tokens.
fn on_gpu(texts: &[(usize, Priority)]) -> WaitingItems {
    let mut waiting = WaitingItems::new(Shapes::on_gpu(512, tokens(8192)), &line(1.0, 0.0, 1024.0));
    for (sequence, &(tokens, priority)) in (0..).zip(texts) {
        waiting.insert(rank(sequence, priority), tokens);
    }
    waiting
}

#[test]
fn what_a_run_costs_anyway_is_filled_with_the_other_priority() {
    let mut texts = vec![(15, Priority::Interactive)];
    texts.extend([(100, Priority::Bulk); 20]);
    let plan = take(&mut on_gpu(&texts)).expect("something waits");
    assert_eq!((plan.bucket, plan.items.len()), (Bucket { rows: 8, length: 128 }, 9));
    let alone = take(&mut on_gpu(&texts[..1])).expect("something waits");
    assert_eq!(alone.bucket, Bucket { rows: 1, length: 16 });
    assert_eq!(on_gpu(&texts[..1]).backlog_us(Priority::Interactive), 1024.0);
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

/// The best shape for items in their order, found by filling every shape that holds the first one.
fn best_of_all(shapes: &Shapes, cost: &CostModel, items: &[usize], wants_room: bool) -> Bucket {
    let (lead, all) = (items[0], items.iter().sum::<usize>());
    let mut by_cost = shapes.prepared().to_vec();
    by_cost.retain(|shape| shape.length >= lead && shape.tokens() <= shapes.max_tokens());
    let us = |shape: &Bucket| cost.predict_us(*shape);
    by_cost.sort_by(|a, b| us(a).total_cmp(&us(b)).then(a.tokens().cmp(&b.tokens())));
    let rows = [lead, all.min(shapes.max_tokens()).max(lead)].map(|tokens| shapes.row(tokens));
    let rows = rows.into_iter().take(if shapes.any_length { 2 } else { 1 });
    let token_us = |shape: Bucket| {
        let (mut rows, mut passed, mut tokens) = (Rows::new(shape), 0, 0);
        for &item in items {
            match rows.put(item) {
                Some(_) if passed <= waiting::PASSED_MAX => tokens += item,
                _ => passed += 1,
            }
        }
        us(&shape) / tokens as f64
    };
    let filled = rows.chain(by_cost).map(|shape| (token_us(shape), shape));
    let better = |best: (f64, Bucket), next: (f64, Bucket)| {
        let has_more_room = wants_room && next.1.tokens() > best.1.tokens();
        if next.0 < best.0 || next.0 == best.0 && has_more_room { next } else { best }
    };
    filled.reduce(better).expect("a text has a row").1
}

fn machine() -> impl Strategy<Value = Shapes> {
    prop_oneof![Just(shapes()), Just(Shapes::on_gpu(512, tokens(1024)))]
}

proptest! {
    #[test]
    fn every_item_runs_once_in_order_within_the_limits(
        items in mixed(),
        cost in cost(),
        shapes in machine(),
    ) {
        let mut waiting = WaitingItems::new(shapes.clone(), &cost);
        let of = |(sequence, &(tokens, priority, turn_ms)): (u64, &(usize, Priority, u64))| {
            ((priority, at(turn_ms), sequence), tokens)
        };
        let all: Vec<(Rank, usize)> = (0..).zip(&items).map(of).collect();
        all.iter().for_each(|&(rank, tokens)| waiting.insert(rank, tokens));
        let mut left: BTreeMap<Rank, usize> = all.iter().copied().collect();
        let mut passed_us = [0.0; 2];
        while let Some(plan) = take(&mut waiting) {
            let (lead, _) = all[plan.items[0] as usize];
            let prepared = shapes.prepared().contains(&plan.bucket);
            prop_assert!(prepared || shapes.any_length && plan.bucket.rows == 1);
            // Within a priority the earliest turn leads, exactly.
            let of_priority = || left.iter().filter(|(rank, _)| rank.0 == lead.0);
            prop_assert_eq!(of_priority().next().map(|(rank, _)| *rank), Some(lead));
            let in_order: Vec<usize> = of_priority().map(|(_, tokens)| *tokens).collect();
            let other_waits = in_order.len() < left.len();
            prop_assert_eq!(plan.bucket, best_of_all(&shapes, &cost, &in_order, other_waits));
            // Between the priorities: neither waits for more than its share of the other.
            let (own, other) = (lead.0 as usize, lead.0.other() as usize);
            passed_us[own] = 0.0;
            let passed = passed_us[other] + cost.predict_us(plan.bucket);
            passed_us[other] = if other_waits { passed } else { 0.0 };
            prop_assert!(passed_us[0] < 300_000.0, "interactive items wait for two bulk batches");
            prop_assert!(passed_us[1] < 150_000.0 / BULK_SHARE, "bulk items are left out");
            let mut rows = Rows::new(plan.bucket);
            for sequence in plan.items {
                let (rank, tokens) = all[sequence as usize];
                prop_assert!(rows.put(tokens).is_some(), "it fits");
                prop_assert!(left.remove(&rank).is_some(), "{} twice", sequence);
            }
        }
        prop_assert_eq!((left.len(), waiting.len(), waiting.tokens()), (0, 0, 0));
        prop_assert_eq!(waiting.backlog_us(Priority::Interactive), 0.0);
    }
}

#[test]
fn bulk_batches_stay_within_their_time_unless_their_first_text_takes_longer() {
    let time = |tokens| CostModel::default().predict_us(Bucket { rows: 1, length: tokens });
    let bulk_us = time(64);
    let mut short = empty();
    add(&mut short, Priority::Bulk, &[20; 40]);
    let plan = short.take(usize::MAX, bulk_us).expect("they are short");
    assert_eq!((plan.bucket, plan.items.len()), (Bucket { rows: 1, length: 64 }, 3));
    let mut mixed = empty();
    add(&mut mixed, Priority::Bulk, &[300]);
    add(&mut mixed, Priority::Interactive, &[20]);
    assert!(!mixed.is_long_bulk(bulk_us), "an interactive item waits");
    assert_eq!(mixed.take(usize::MAX, bulk_us).map(|plan| plan.items), Some(vec![1]));
    assert!(mixed.is_long_bulk(bulk_us));
    assert_eq!(mixed.take(usize::MAX, bulk_us).map(|plan| plan.items), Some(vec![0]));
}
