//! The rules of lexical weights, from what the engine gives to what the client reads.
//!
//! Every expected answer was worked out by hand from the rules: the maximum over the positions of
//! an id, the dropped ids leave, only weights above zero stay, then the least weight and the top k,
//! ascending by id.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::{BOTH, DENSE, MASK, SPARSE, Server, VOCAB, piece};

/// A rule, the ids and the weight at each position, the request's options, what is kept.
type Case = (&'static str, &'static [u32], &'static [f32], Value, &'static [(u32, f64)]);

const FORMATS: [&str; 4] = ["indices", "dict", "tokens", "pgvector"];

/// The next f32 above 0.1 and the next below it.
const ABOVE_TENTH: f32 = 0.100_000_01;
const BELOW_TENTH: f32 = 0.099_999_994;

fn positions() -> Vec<Case> {
    vec![
        ("one position", &[0, 5, 2], &[0.9, 0.5, 0.9], json!({}), &[(5, 0.5)]),
        (
            "ids ascend, whatever their order in the text",
            &[0, 300, 20, 7, 2],
            &[0.0, 0.1, 0.2, 0.3, 0.0],
            json!({}),
            &[(7, 0.3), (20, 0.2), (300, 0.1)],
        ),
        (
            "the heaviest of three positions, which is the second",
            &[0, 7, 7, 7, 2],
            &[0.0, 0.25, 0.75, 0.5, 0.0],
            json!({}),
            &[(7, 0.75)],
        ),
        (
            "equal repeats count once",
            &[0, 7, 7, 2],
            &[0.0, 0.25, 0.25, 0.0],
            json!({}),
            &[(7, 0.25)],
        ),
        (
            "a repeat that is not above zero takes nothing away",
            &[0, 7, 7, 8, 8, 2],
            &[0.0, -1.0, 0.5, 0.5, 0.0, 0.0],
            json!({}),
            &[(7, 0.5), (8, 0.5)],
        ),
        (
            "the four dropped ids leave, in the middle of the text too",
            &[0, 5, 1, 3, 0, 2, 6, 2],
            &[9.0, 0.5, 9.0, 9.0, 9.0, 9.0, 0.25, 9.0],
            json!({}),
            &[(5, 0.5), (6, 0.25)],
        ),
        ("<mask> stays", &[0, MASK, 2], &[0.0, 0.5, 0.0], json!({}), &[(MASK, 0.5)]),
        ("4 is no special id", &[0, 4, 2], &[0.0, 0.5, 0.0], json!({}), &[(4, 0.5)]),
        ("no token of its own", &[0, 2], &[0.5, 0.5], json!({}), &[]),
        ("all dropped", &[0, 1, 3, 3, 2], &[0.5; 5], json!({}), &[]),
    ]
}

fn weights() -> Vec<Case> {
    vec![
        (
            "zero, negative zero and negative weights leave",
            &[0, 5, 6, 7, 8, 2],
            &[0.0, 0.0, -0.0, -0.5, 0.5, 0.0],
            json!({}),
            &[(8, 0.5)],
        ),
        ("nothing is above zero", &[0, 5, 6, 2], &[0.5, 0.0, -0.5, 0.5], json!({}), &[]),
        (
            "the smallest and the largest float stay",
            &[0, 5, 6, 2],
            &[0.0, 1e-45, f32::MAX, 0.0],
            json!({}),
            &[(5, 1e-45), (6, 3.402_823_5e38)],
        ),
        (
            "a least weight of zero keeps no zero",
            &[0, 5, 6, 2],
            &[0.0, 0.0, 1e-45, 0.0],
            json!({"sparse_min_weight": 0}),
            &[(6, 1e-45)],
        ),
        (
            "negative zero is zero as a least weight",
            &[0, 5, 6, 7, 2],
            &[0.0, 0.0, -0.0, 0.5, 0.0],
            json!({"sparse_min_weight": -0.0}),
            &[(7, 0.5)],
        ),
        (
            "the least weight itself stays, the next float below leaves",
            &[0, 5, 6, 7, 2],
            &[0.0, BELOW_TENTH, 0.1, ABOVE_TENTH, 0.0],
            json!({"sparse_min_weight": 0.1}),
            &[(6, 0.1), (7, 0.100_000_01)],
        ),
        (
            "the least weight is compared with the heaviest position",
            &[0, 5, 5, 6, 6, 2],
            &[0.0, 0.25, 0.5, 0.25, 0.375, 0.0],
            json!({"sparse_min_weight": 0.5}),
            &[(5, 0.5)],
        ),
        (
            "a least weight above all keeps nothing",
            &[0, 5, 2],
            &[0.0, 0.5, 0.0],
            json!({"sparse_min_weight": 0.500_000_1}),
            &[],
        ),
        (
            "no finite weight reaches what f32 cannot hold, but for the largest",
            &[0, 5, 6, 2],
            &[0.0, 0.5, f32::MAX, 0.0],
            json!({"sparse_min_weight": 1e300}),
            &[(6, 3.402_823_5e38)],
        ),
    ]
}

fn heaviest() -> Vec<Case> {
    const IDS: &[u32] = &[0, 40, 30, 20, 10, 2];
    const TIES: &[f32] = &[0.0, 0.5, 0.25, 0.5, 0.25, 0.0];
    vec![
        (
            "of equal weights the smaller id stays",
            IDS,
            TIES,
            json!({"sparse_top_k": 1}),
            &[(20, 0.5)],
        ),
        ("both of the heaviest", IDS, TIES, json!({"sparse_top_k": 2}), &[(20, 0.5), (40, 0.5)]),
        (
            "a tie behind the heaviest",
            IDS,
            TIES,
            json!({"sparse_top_k": 3}),
            &[(10, 0.25), (20, 0.5), (40, 0.5)],
        ),
        (
            "as many as there are",
            IDS,
            TIES,
            json!({"sparse_top_k": 4}),
            &[(10, 0.25), (20, 0.5), (30, 0.25), (40, 0.5)],
        ),
        (
            "more than there are",
            IDS,
            TIES,
            json!({"sparse_top_k": 5}),
            &[(10, 0.25), (20, 0.5), (30, 0.25), (40, 0.5)],
        ),
        (
            "an id counts once however often it stands",
            &[0, 7, 7, 7, 8, 2],
            &[0.0, 0.5, 0.75, 0.75, 0.25, 0.0],
            json!({"sparse_top_k": 2}),
            &[(7, 0.75), (8, 0.25)],
        ),
        (
            "dropped ids take no place among the k",
            &[0, 3, 8, 1, 9, 2],
            &[0.9, 0.9, 0.25, 0.9, 0.5, 0.9],
            json!({"sparse_top_k": 1}),
            &[(9, 0.5)],
        ),
        (
            "no place is filled with zeros",
            &[0, 7, 8, 2],
            &[0.0, 0.5, 0.0, 0.0],
            json!({"sparse_top_k": 2}),
            &[(7, 0.5)],
        ),
        (
            "fewer than k reach the least weight",
            IDS,
            TIES,
            json!({"sparse_top_k": 3, "sparse_min_weight": 0.5}),
            &[(20, 0.5), (40, 0.5)],
        ),
        (
            "more than k reach the least weight",
            IDS,
            TIES,
            json!({"sparse_top_k": 3, "sparse_min_weight": 0.25}),
            &[(10, 0.25), (20, 0.5), (40, 0.5)],
        ),
    ]
}

fn expected(format: &str, kept: &[(u32, f64)]) -> Value {
    let object = |key: &dyn Fn(u32) -> String| {
        Value::from(kept.iter().map(|&(id, w)| (key(id), json!(w))).collect::<Map<_, _>>())
    };
    let value = match format {
        "indices" => {
            let (ids, values): (Vec<u32>, Vec<f64>) = kept.iter().copied().unzip();
            json!({"indices": ids, "values": values})
        }
        "dict" => object(&|id| id.to_string()),
        "tokens" => object(&|id| if id == MASK { "<mask>".to_owned() } else { token(id) }),
        _ => {
            let pairs: Vec<String> =
                kept.iter().map(|&(id, w)| format!("{}:{}", id + 1, json!(w))).collect();
            json!(format!("{{{}}}/{VOCAB}", pairs.join(",")))
        }
    };
    // serde_json's own reading is off by a bit at times: both sides go through it.
    serde_json::from_str(&value.to_string()).expect("it was just written")
}

fn token(id: u32) -> String {
    // The four special pieces, then pieces of no text.
    let special = ["<s>", "<pad>", "</s>", "<unk>"];
    special.get(id as usize).map_or_else(|| piece(id), |piece| (*piece).to_owned())
}

fn ask(server: &Server, path: &str, ids: &[u32], options: &Value, format: &str) -> Value {
    let mut body = json!({"input": [ids], "sparse_format": format});
    for (key, value) in options.as_object().expect("an object") {
        body[key] = value.clone();
    }
    server.post(path, &body).ok()["data"][0]["sparse_values"].clone()
}

#[test]
fn every_case_worked_out_by_hand_is_answered_in_every_format() {
    let server = Server::ready();
    for (rule, ids, weights, options, kept) in
        [positions(), weights(), heaviest()].into_iter().flatten()
    {
        server.set_weights(weights);
        for format in FORMATS {
            let answer = ask(&server, SPARSE, ids, &options, format);
            assert_eq!(answer, expected(format, kept), "{rule}, {format}");
        }
        let paired = ask(&server, BOTH, ids, &options, "indices");
        assert_eq!(paired, expected("indices", kept), "{rule}, paired");
    }
}

#[test]
fn the_four_formats_are_these_bytes() {
    let server = Server::ready();
    server.set_weights(&[0.9, 1.25, 0.1, 1e-7, 0.9]);
    for (format, bytes) in [
        ("indices", r#""sparse_values":{"indices":[4,8,999],"values":[0.1,1.25,1e-7]}}"#),
        ("dict", r#""sparse_values":{"4":0.1,"8":1.25,"999":1e-7}}"#),
        ("tokens", r#""sparse_values":{"▁p\"4":0.1,"▁p\"8":1.25,"<mask>":1e-7}}"#),
        ("pgvector", r#""sparse_values":"{5:0.1,9:1.25,1000:1e-7}/1000"}"#),
    ] {
        let body = json!({"input": [[0, 8, 4, MASK, 2]], "sparse_format": format});
        let answer = server.post(SPARSE, &body);
        let text = String::from_utf8(answer.body).expect("it is UTF-8");
        assert!(text.contains(bytes), "{format}: {text}");
    }
}

#[test]
fn a_weight_that_is_not_finite_is_refused_wherever_it_is_wanted() {
    let server = Server::ready();
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for position in 0..4 {
            let mut weights = [0.5; 4];
            weights[position] = bad;
            server.set_weights(&weights);
            let body = json!({"input": [[0, 5, 6, 2]], "sparse_top_k": 1});
            for path in [SPARSE, BOTH] {
                let error = server.post(path, &body).error();
                error.is(500, "server_error", "non_finite_output", Some("input"));
            }
            server.post(DENSE, &body).ok();
        }
    }
    server.set_weights(&[0.5; 4]);
    server.post(SPARSE, &json!({"input": [[0, 5, 6, 2]]})).ok();
}

/// pgvector's text → 0-based ids and weights, by the rules of its input function.
fn read_pgvector(text: &str) -> (Vec<(u32, f32)>, usize) {
    let (pairs, dimension) = text.strip_prefix('{').and_then(|t| t.split_once("}/")).expect(text);
    let read = |pair: &str| {
        let (index, weight) = pair.split_once(':').expect("index:weight");
        let index: u32 = index.parse().expect("an index");
        (index.checked_sub(1).expect("indices start at 1"), weight.parse().expect("a weight"))
    };
    let pairs = pairs.split(',').filter(|pair| !pair.is_empty()).map(read).collect();
    (pairs, dimension.parse().expect("a dimension"))
}

#[test]
fn every_format_reads_back_as_the_same_floats() {
    let server = Server::ready();
    let strategy = prop::collection::vec((4..VOCAB as u32, 0..f32::MAX.to_bits()), 0..14);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let property = |positions: Vec<(u32, u32)>| {
        let floats = positions.iter().map(|position| f32::from_bits(position.1));
        let weights: Vec<f32> = std::iter::once(0.5).chain(floats).chain([0.5]).collect();
        server.set_weights(&weights);
        let words = positions.iter().map(|position| position.0);
        let ids: Vec<u32> = std::iter::once(0).chain(words).chain([2]).collect();
        let lists = ask(&server, SPARSE, &ids, &json!({}), "indices");
        let kept: Vec<(u32, f32)> = serde_json::from_value::<Vec<u32>>(lists["indices"].clone())
            .expect("ids")
            .into_iter()
            .zip(crate::support::floats(&lists["values"]))
            .collect();
        for &(id, weight) in &kept {
            let of_id = positions.iter().filter(|position| position.0 == id);
            let most = of_id.map(|position| position.1).max();
            prop_assert_eq!(Some(weight.to_bits()), most);
        }
        let pgvector = ask(&server, SPARSE, &ids, &json!({}), "pgvector");
        prop_assert_eq!(read_pgvector(pgvector.as_str().expect("a text")), (kept.clone(), VOCAB));
        let dict = ask(&server, SPARSE, &ids, &json!({}), "dict");
        prop_assert_eq!(dict.as_object().map(Map::len), Some(kept.len()));
        for (id, weight) in kept {
            let read: f32 = dict[id.to_string()].to_string().parse().expect("a float");
            prop_assert_eq!(read.to_bits(), weight.to_bits());
        }
        Ok(())
    };
    runner.run(&strategy, property).expect("the property holds");
}
