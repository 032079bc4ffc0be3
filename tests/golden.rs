//! The real package on the real engine against vectors computed by an independent program.
//!
//! `tests/golden/multilingual-e5-small.json` comes from `scripts/make_test_files.py`: a numpy
//! forward pass in f32 that shares no code with the ONNX graph or with OpenVINO.
#![cfg(feature = "openvino")]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clock::RealClock;
use duovec::engine::openvino::{OpenVinoEngine, OpenVinoModel};
use duovec::engine::{BatchOutput, Engine, EngineError, Session, Split};
use model::package::manifest::PromptName;
use model::package::{ModelPackage, digest};
use model::tokenize::{TextTokenizer, Tokenized};
use rustix::process::{Resource, Rlimit, setrlimit};
use scheduling::batch::plan::ROW_TOKENS;
use scheduling::batch::{Batch, Bucket, TokenIds};
use serde::Deserialize;
use settings::{PrecisionChoice, RescueChoice, SpecialTokenText};
use tempfile::TempDir;
use testing::{copy_of, default_package, text_of};
use vectors::dense::cosine;
use vectors::sparse::{self, Selection};

/// Dense vectors in the served precision against f32.
const LEAST_COSINE: f64 = 0.9995;
/// The same in f32, where only the order of summation differs.
const LEAST_COSINE_F32: f64 = 0.999_999;
/// Of a late chunk, which may be one token.
const LEAST_COSINE_PART: f64 = 0.999_99;
const LARGEST_WEIGHT_ERROR_F32: f32 = 1e-3;
/// Longest text that the model takes, in tokens.
const MODEL_LENGTH: usize = 512;
/// Items of a batch of mixed length.
const MIXED_ROWS: usize = 8;

#[derive(Deserialize)]
struct Golden {
    model_id: String,
    hidden_size: usize,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    text: String,
    lang: String,
    input_type: PromptName,
    tokens: usize,
    /// What the text had before it was cut; absent when it was not.
    truncated_from: Option<usize>,
    /// Position of the text's first token, behind the special token and the prompt.
    first_text_position: usize,
    token_ids_sha256: String,
    dense: String,
    /// First token, the one behind the last, and the vector of late chunks of a long text.
    #[serde(default)]
    parts: Vec<(usize, usize, String)>,
    sparse: (Vec<u32>, Vec<f32>),
}

fn floats(base64: &str) -> Vec<f32> {
    let bytes = STANDARD.decode(base64).expect("base64");
    let float = |chunk: &[u8]| f32::from_le_bytes(chunk.try_into().expect("four bytes"));
    bytes.chunks_exact(4).map(float).collect()
}

impl Item {
    fn dense(&self) -> Vec<f32> {
        floats(&self.dense)
    }
}

fn golden() -> Golden {
    serde_json::from_str(&text_of("tests/golden/multilingual-e5-small.json")).expect("it is JSON")
}

fn package() -> ModelPackage {
    ModelPackage::open(&default_package())
        .expect("the default package is there: run scripts/test.sh")
}

/// One with a worker of two threads, or of as many as `threads` says.
fn engine(
    package: &ModelPackage,
    precision: PrecisionChoice,
    rescue: RescueChoice,
    threads: Option<usize>,
) -> OpenVinoEngine {
    let library_dir = env::var_os("DUOVEC_OPENVINO_LIBRARY_DIR").map(PathBuf::from);
    let clock = Arc::new(RealClock::new());
    let split = Split { workers: 1, threads: threads.unwrap_or(2) };
    OpenVinoModel::read(package, library_dir.as_deref(), precision, rescue, clock)
        .and_then(|mut model| model.compile(split))
        .expect("the engine loads: run scripts/test.sh")
}

/// The largest difference of two numbers at the same place.
fn apart(some: &[f32], others: &[f32]) -> f32 {
    some.iter().zip(others).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn tokenize(package: &ModelPackage, golden: &Golden) -> Vec<Tokenized> {
    let tokenizer = TextTokenizer::open(package, SpecialTokenText::Special, None)
        .expect("the tokenizer is read");
    let one = |item: &Item| tokenizer.tokenize(&item.text, Some(item.input_type), &|_| true);
    golden.items.iter().map(|item| one(item).expect("it is tokenized")).collect()
}

/// A session; OpenVINO runs shapes that it was not opened for too.
fn open(engine: &OpenVinoEngine) -> Box<dyn Session> {
    engine.open_session(&[]).expect("a session")
}

/// Dense vector and token weights of each item, run in batches of `rows` items in the given order.
fn run(
    session: &mut dyn Session,
    tokenized: &[Tokenized],
    order: &[usize],
    rows: usize,
) -> Vec<(Vec<f32>, Vec<f32>)> {
    let mut vectors = vec![(Vec::new(), Vec::new()); tokenized.len()];
    for chosen in order.chunks(rows) {
        let items: Vec<_> = chosen.iter().map(|&index| tokenized[index].ids.clone()).collect();
        let length = items.iter().map(|ids| ids.len()).max().expect("a chunk is not empty");
        // One row and some tokens of no text; short texts share a row with the longest ones.
        let length = (length + 5).clamp(ROW_TOKENS, MODEL_LENGTH);
        let bucket = Bucket { rows: chosen.len() + 1, length };
        let batch = Batch::new(bucket, items).expect("the items fit");
        let output = session.run(&batch).expect("the engine runs");
        for (&place, &index) in batch.places().iter().zip(chosen) {
            let tokens = tokenized[index].ids.len();
            vectors[index] = (output.dense_of(place), output.weights_of(place, tokens));
        }
    }
    vectors
}

fn lowest_cosine(golden: &Golden, vectors: &[(Vec<f32>, Vec<f32>)]) -> f64 {
    let pairs = golden.items.iter().zip(vectors);
    let lowest = pairs.map(|(item, (dense, _))| {
        assert_eq!(dense.len(), golden.hidden_size);
        cosine(&item.dense(), dense)
    });
    lowest.fold(1.0, f64::min)
}

fn largest_weight_error(
    package: &ModelPackage,
    golden: &Golden,
    tokenized: &[Tokenized],
    vectors: &[(Vec<f32>, Vec<f32>)],
) -> f32 {
    let dropped = &package.manifest().sparse.as_ref().expect("it has a head").dropped_token_ids;
    let mut worst = 0.0_f32;
    for ((item, ids), (_, weights)) in golden.items.iter().zip(tokenized).zip(vectors) {
        let start = ids.own.start;
        let text = (&ids.ids[start..], &weights[start..]);
        let seen = sparse::select(text.0, text.1, dropped, Selection::default());
        for (id, weight) in item.sparse.0.iter().zip(&item.sparse.1) {
            let at = seen.indices.binary_search(id);
            worst = worst.max((weight - at.map_or(0.0, |at| seen.values[at])).abs());
        }
        for (id, weight) in seen.pairs() {
            let known = item.sparse.0.binary_search(&id).is_ok();
            worst = worst.max(if known { 0.0 } else { weight });
        }
    }
    worst
}

/// Short and long items side by side.
fn mixed_order(tokenized: &[Tokenized]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tokenized.len()).collect();
    order.sort_by_key(|&index| tokenized[index].ids.len());
    let half = order.len() / 2;
    let long = order.split_off(half);
    long.into_iter()
        .rev()
        .zip(order.into_iter().map(Some).chain([None]))
        .flat_map(|(long, short)| std::iter::once(long).chain(short))
        .collect()
}

#[test]
fn token_ids_are_those_of_the_reference() {
    let (golden, package) = (golden(), package());
    assert_eq!(package.manifest().model_id, golden.model_id);
    assert!(golden.items.len() >= 50);
    let mut languages: Vec<&str> = golden.items.iter().map(|item| item.lang.as_str()).collect();
    languages.sort_unstable();
    languages.dedup();
    assert!(languages.len() >= 10, "{languages:?}");
    for (item, seen) in golden.items.iter().zip(tokenize(&package, &golden)) {
        let ids: Vec<String> = seen.ids.iter().map(u32::to_string).collect();
        let digest = digest::of_bytes(ids.join(",").as_bytes());
        assert_eq!(seen.ids.len(), item.tokens, "{}", item.text);
        assert_eq!(digest, item.token_ids_sha256, "{}", item.text);
        assert_eq!(seen.own.start, item.first_text_position, "{}", item.text);
        let full_count = item.truncated_from.unwrap_or(item.tokens);
        assert_eq!(seen.full_count, full_count, "{}", item.text);
    }
}

#[test]
fn each_precision_agrees_with_the_reference_alone_and_in_mixed_batches() {
    let (golden, package) = (golden(), package());
    let tokenized = tokenize(&package, &golden);
    let order = mixed_order(&tokenized);
    assert_eq!(order.len(), tokenized.len());
    let served_error = package.manifest().canary.tolerances.sparse_max_abs;
    for (choice, least_cosine, largest_error) in [
        (PrecisionChoice::F32, LEAST_COSINE_F32, LARGEST_WEIGHT_ERROR_F32),
        (PrecisionChoice::Auto, LEAST_COSINE, served_error),
    ] {
        let engine = engine(&package, choice, RescueChoice::None, None);
        let mut session = open(&engine);
        for rows in [1, MIXED_ROWS] {
            let vectors = run(&mut *session, &tokenized, &order, rows);
            let cosine = lowest_cosine(&golden, &vectors);
            let error = largest_weight_error(&package, &golden, &tokenized, &vectors);
            let precision = &engine.info().precision;
            println!(
                "{precision}, {rows} rows: lowest cosine {cosine:.7}, weight error {error:.6}"
            );
            assert!(cosine >= least_cosine, "{precision}: {cosine}");
            assert!(error <= largest_error, "{precision}: {error}");
        }
    }
}

/// The reference pools its own hidden states. What stands beside a text in its row changes nothing.
#[test]
fn late_chunks_are_those_of_the_reference_whatever_stands_beside_them() {
    let (golden, package) = (golden(), package());
    let tokenized = tokenize(&package, &golden);
    let engine = engine(&package, PrecisionChoice::F32, RescueChoice::None, None);
    let mut session = open(&engine);
    let short = tokenized.iter().map(|item| &item.ids).filter(|ids| ids.len() < ROW_TOKENS);
    let long = golden.items.iter().zip(&tokenized).filter(|(item, _)| !item.parts.is_empty());
    let mut documents = 0;
    for ((item, Tokenized { ids, .. }), beside) in long.zip(short.cycle()) {
        documents += 1;
        let parts: Vec<_> = item.parts.iter().map(|&(start, end, _)| start..end).collect();
        let parted = ids.clone().with_parts(&parts);
        let bucket = Bucket { rows: 1, length: ids.len() + 2 * ROW_TOKENS };
        let mut vectors = Vec::new();
        for items in [vec![parted.clone()], vec![beside.clone(), parted.clone(), beside.clone()]] {
            let place = items.len() / 2;
            let batch = Batch::new(bucket, items).expect("they fit");
            let output = session.run(&batch).expect("the engine runs");
            let place = batch.places()[place];
            vectors.push((output.dense_of(place), output.weights_of(place, ids.len())));
        }
        let [(alone, weights), (packed, packed_weights)] = &vectors[..] else { panic!() };
        let hidden_size = golden.hidden_size;
        assert_eq!(alone.len(), parts.len() * hidden_size);
        for (part, (_, _, expected)) in item.parts.iter().enumerate() {
            let [alone, packed] =
                [alone, packed].map(|all| &all[part * hidden_size..][..hidden_size]);
            let (to_golden, to_packed) = (cosine(alone, &floats(expected)), cosine(alone, packed));
            assert!(to_golden >= LEAST_COSINE_PART, "{} part {part}: {to_golden}", item.lang);
            assert!(to_packed >= LEAST_COSINE_F32, "{} part {part}: {to_packed}", item.lang);
        }
        assert!(apart(weights, packed_weights) <= 1e-5);
    }
    assert!(documents >= 4);
}

/// A package of the tests, in a folder that must outlive it.
fn package_of(fixture: &str) -> (TempDir, ModelPackage) {
    let folder = copy_of(fixture);
    let package = ModelPackage::open(folder.path()).expect("it is whole");
    (folder, package)
}

/// The engine has compared the canary's vectors with those of the reference when it is there.
#[test]
fn tokens_have_the_same_vectors_alone_and_beside_other_texts() {
    let (_folder, package) = package_of("tiny-tokens");
    let size = package.manifest().token_vector_size.expect("it has them");
    let engine = engine(&package, PrecisionChoice::F32, RescueChoice::None, None);
    let mut session = open(&engine);
    let tokenizer = TextTokenizer::open(&package, SpecialTokenText::Special, None);
    let tokenizer = tokenizer.expect("the tokenizer is read");
    let texts = ["", "der schnelle Test", "быстрый тест", "快速测试", "اختبار", "the the quick"];
    let long = "the quick test ".repeat(40);
    let ids = |text: &str| tokenizer.tokenize(text, None, &|_| true).expect("it is tokenized").ids;
    let all: Vec<TokenIds> = texts.iter().map(|text| ids(text)).chain([ids(&long)]).collect();
    assert_eq!(all[all.len() - 1].len(), package.manifest().max_input_tokens);
    let mut run = |items: Vec<TokenIds>| {
        let batch = Batch::new(Bucket { rows: 2, length: 128 }, items).expect("they fit");
        let output = session.run(&batch).expect("the engine runs");
        let items = batch.items().iter().zip(batch.places());
        let rows = items.map(|(ids, &place)| output.token_vectors_of(place, ids.len()));
        rows.collect::<Vec<_>>()
    };
    let wanted = |ids: &TokenIds| ids.clone().with_token_vectors();
    let packed = run(all.iter().map(wanted).collect());
    for (ids, packed) in all.iter().zip(packed) {
        let [alone] = &run(vec![wanted(ids)])[..] else { panic!() };
        assert_eq!((alone.len(), packed.len()), (ids.len() * size, ids.len() * size));
        assert!(apart(alone, &packed) <= 1e-5, "{ids:?}");
        let units = alone.chunks(size).map(|one| one.iter().map(|v| v * v).sum::<f32>());
        assert!(units.map(|length| (length - 1.0).abs()).fold(0.0, f32::max) < 1e-5);
    }
    assert_eq!(run(vec![all[1].clone()]), [Vec::<f32>::new()], "nobody asked");
}

/// The engine has compared the canary's words with those of the reference when it is there.
#[test]
fn texts_have_the_same_words_alone_and_beside_others() {
    let (_folder, package) = package_of("tiny-words");
    let kept = package.manifest().words().expect("it has them");
    let engine = engine(&package, PrecisionChoice::F32, RescueChoice::None, None);
    let mut session = open(&engine);
    let texts: Vec<TokenIds> = (1..60)
        .map(|tokens: u32| {
            let own = (0..tokens).map(|place| 4 + (7 * tokens + 31 * place) % 400);
            TokenIds::new(&[0].into_iter().chain(own).chain([2]).collect::<Vec<_>>())
        })
        .collect();
    let mut run = |bucket: Bucket, items: Vec<TokenIds>| {
        let batch = Batch::filled(bucket, items).expect("they fit");
        let output = session.run(&batch).expect("the engine runs");
        let words = batch.places().iter().map(|&place| {
            let (ids, weights) = output.words_of(place);
            sparse::select(&ids, &weights, &[], Selection::default())
        });
        (batch.items().to_vec(), words.collect::<Vec<_>>())
    };
    let (packed, among) = run(Bucket { rows: 3, length: 512 }, texts);
    assert!(packed.len() > 40, "{}", packed.len());
    let mut full = 0;
    for (ids, among) in packed.into_iter().zip(among) {
        let length = ids.room();
        let (_, alone) = run(Bucket { rows: 1, length }, vec![ids.clone()]);
        assert_eq!(alone[0].indices, among.indices, "{ids:?}");
        assert!(apart(&alone[0].values, &among.values) <= 1e-5, "{ids:?}");
        let own = ids.iter().filter(|id| among.indices.contains(id)).count();
        assert!(own < among.indices.len(), "words need not be in the text");
        full += usize::from(among.indices.len() == kept);
    }
    assert!(full > 20, "most texts have more words than stay");
}

/// On a processor without half precision there is nothing to rescue from.
#[test]
fn the_rescue_precision_is_f32_beside_half_precision_only() {
    let (_folder, package) = package_of("tiny");
    let ids = TokenIds::new(&package.manifest().canary.token_ids);
    let tokens = ids.len();
    let bucket = Bucket { rows: 1, length: tokens };
    let batch = Batch::new(bucket, vec![ids]).expect("it fits");
    let f32_engine = engine(&package, PrecisionChoice::F32, RescueChoice::F32, None);
    let mut f32_session = open(&f32_engine);
    assert_eq!(f32_session.rescue(&batch), None);
    let expected = f32_session.run(&batch).expect("it runs");
    let place = batch.places()[0];
    let rows =
        |output: &BatchOutput<'_>| (output.dense_of(place), output.weights_of(place, tokens));

    let engine = engine(&package, PrecisionChoice::Auto, RescueChoice::F32, None);
    let precision = engine.info().precision.clone();
    let mut session = open(&engine);
    let rescued = session.rescue(&batch).map(|rescued| rows(&rescued.expect("it runs")));
    println!("served in {precision}, rescued: {rescued:?}");
    if precision == "f32" {
        assert_eq!(rescued, None);
        return;
    }
    assert_eq!(rescued, Some(rows(&expected)));
    let usual = session.run(&batch).expect("it runs");
    assert_ne!(usual.dense_of(place), expected.dense_of(place), "it is another precision");
}

/// Bytes of memory that the process has named, whether it uses them or not.
fn named_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("it is there");
    let pages: u64 = pages.split(' ').next().expect("a number").parse().expect("a number");
    pages * u64::try_from(rustix::param::page_size()).expect("it is small")
}

#[test]
fn a_run_that_lacks_memory_gives_nobody_the_numbers_of_another_text() {
    const THREADS: &str = "DUOVEC_TEST_THREADS";
    let Ok(threads) = env::var(THREADS) else {
        // The limit is one of a whole process. With one thread OpenVINO reports no error.
        for threads in ["1", "2"] {
            let mut own = Command::new(env::current_exe().expect("its path"));
            own.args([
                "--exact",
                "a_run_that_lacks_memory_gives_nobody_the_numbers_of_another_text",
            ]);
            let ended = own.env(THREADS, threads).output().expect("it starts");
            // A name that is none of a test would run none, and succeed.
            let has_run = String::from_utf8_lossy(&ended.stdout).contains("1 passed");
            assert!(ended.status.success() && has_run, "{threads} threads: {ended:?}");
        }
        return;
    };
    let threads = Some(threads.parse().expect("a number"));
    let package = package();
    let open = || open(&engine(&package, PrecisionChoice::F32, RescueChoice::None, threads));
    // All have as many spans, so that the vectors of one could pass for those of the other.
    let run = |session: &mut dyn Session, rows: usize| {
        let length = MIXED_ROWS * MODEL_LENGTH / rows;
        let text = TokenIds::new(&vec![4; length]);
        let batch = Batch::new(Bucket { rows, length }, vec![text; rows]).expect("they fit");
        session.run(&batch).map(|output| output.dense_of(batch.places()[0]))
    };
    let limit = |current| {
        let limit = Rlimit { current, maximum: None };
        setrlimit(Resource::As, limit).expect("it may be set");
    };
    let mut session = open();
    run(&mut *session, MIXED_ROWS * 32).expect("there is memory");
    limit(Some(named_bytes() + (1 << 20)));
    let seen = run(&mut *session, MIXED_ROWS);
    limit(None);
    match seen {
        Err(error) => assert!(matches!(error, EngineError::ProcessPoisoned(_)), "{error}"),
        // What the first run took may do for the second.
        Ok(dense) => {
            let again = run(&mut *open(), MIXED_ROWS).expect("there is memory");
            assert!(cosine(&dense, &again) > LEAST_COSINE_F32, "{dense:?}, {again:?}");
        }
    }
}
