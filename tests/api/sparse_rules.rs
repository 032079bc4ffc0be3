//! The rules of lexical weights, from what the engine gives to what the client reads.
//!
//! Every expected answer was worked out by hand from the rules: the maximum over the positions of
//! an id, the dropped ids leave, only weights above zero stay, then the least weight and the top k,
//! ascending by id.

use std::fmt::Debug;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::support::*;

/// A rule; the ids and the weight at each position; the options `sparse_min_weight` (MIN) and
/// `sparse_top_k` (TOP); what is kept.
const CASES: &str = "
one position | 0:0.9 5:0.5 2:0.9 | {} | 5:0.5
ids ascend, whatever their order | 0:0 300:0.1 20:0.2 7:0.3 2:0 | {} | 7:0.3 20:0.2 300:0.1
the heaviest of three positions, the second | 0:0 7:0.25 7:0.75 7:0.5 2:0 | {} | 7:0.75
equal repeats count once | 0:0 7:0.25 7:0.25 2:0 | {} | 7:0.25
a repeat not above zero takes nothing away | 0:0 7:-1 7:0.5 8:0.5 8:0 2:0 | {} | 7:0.5 8:0.5
the four dropped ids leave | 0:9 5:0.5 1:9 3:9 0:9 2:9 6:0.25 2:9 | {} | 5:0.5 6:0.25
<mask> stays | 0:0 999:0.5 2:0 | {} | 999:0.5
4 is no special id | 0:0 4:0.5 2:0 | {} | 4:0.5
no token of its own | 0:0.5 2:0.5 | {} |
all dropped | 0:0.5 1:0.5 3:0.5 3:0.5 2:0.5 | {} |
only weights above zero stay | 0:0 5:0 6:-0 7:-0.5 8:0.5 2:0 | {} | 8:0.5
nothing is above zero | 0:0.5 5:0 6:-0.5 2:0.5 | {} |
the least and the largest float | 0:0 5:1e-45 6:3.4028235e38 2:0 | {} | 5:1e-45 6:3.4028235e38
a least weight of zero keeps no zero | 0:0 5:0 6:1e-45 2:0 | {MIN: 0} | 6:1e-45
negative zero as a least weight | 0:0 5:0 6:-0 7:0.5 2:0 | {MIN: -0.0} | 7:0.5
the float below the least weight leaves | 0:0 5:0.099999994 2:0 | {MIN: 0.1} |
the least weight itself stays | 0:0 6:0.1 7:0.10000001 2:0 | {MIN: 0.1} | 6:0.1 7:0.10000001
it is compared with the heaviest | 0:0 5:0.25 5:0.5 6:0.25 6:0.375 2:0 | {MIN: 0.5} | 5:0.5
a least weight above all keeps nothing | 0:0 5:0.5 2:0 | {MIN: 0.5000001} |
what f32 cannot hold | 0:0 5:0.5 6:3.4028235e38 2:0 | {MIN: 1e300} | 6:3.4028235e38
of equal weights the smaller id stays | TIES | {TOP: 1} | 20:0.5
both of the heaviest | TIES | {TOP: 2} | 20:0.5 40:0.5
a tie behind the heaviest | TIES | {TOP: 3} | 10:0.25 20:0.5 40:0.5
as many as there are | TIES | {TOP: 4} | 10:0.25 20:0.5 30:0.25 40:0.5
more than there are | TIES | {TOP: 18446744073709551615} | 10:0.25 20:0.5 30:0.25 40:0.5
an id counts once | 0:0 7:0.5 7:0.75 7:0.75 8:0.25 2:0 | {TOP: 2} | 7:0.75 8:0.25
dropped ids take no place | 0:0.9 3:0.9 8:0.25 1:0.9 9:0.5 2:0.9 | {TOP: 1} | 9:0.5
no place is filled with zeros | 0:0 7:0.5 8:0 2:0 | {TOP: 2} | 7:0.5
fewer than k | TIES | {TOP: 3, MIN: 0.5} | 20:0.5 40:0.5
more than k | TIES | {TOP: 3, MIN: 0.25} | 10:0.25 20:0.5 40:0.5
";
const TIES: &str = "0:0 40:0.5 30:0.25 20:0.5 10:0.25 2:0";

const FORMATS: [&str; 4] = ["indices", "dict", "tokens", "pgvector"];

/// Ids and weights of a part of a case.
fn pairs<W: FromStr<Err: Debug>>(part: &str) -> Vec<(u32, W)> {
    let pair = |word: &str| {
        let (id, weight) = word.split_once(':').expect("id:weight");
        (id.parse().expect("an id"), weight.parse().expect("a weight"))
    };
    part.replace("TIES", TIES).split_whitespace().map(pair).collect()
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
    let body = joined(json!({"input": [ids], "sparse_format": format}), options);
    server.post(path, &body).ok()["data"][0]["sparse_values"].clone()
}

#[test]
fn every_case_worked_out_by_hand_is_answered_in_every_format() {
    let server = Server::ready();
    for case in CASES.trim().lines() {
        println!("{case}");
        let parts: Vec<&str> = case.split('|').collect();
        let (ids, weights): (Vec<u32>, Vec<f32>) = pairs::<f32>(parts[1]).into_iter().unzip();
        let options = serde_json::from_str(
            &parts[2].replace("MIN", "\"sparse_min_weight\"").replace("TOP", "\"sparse_top_k\""),
        )
        .expect("JSON");
        let kept = pairs::<f64>(parts[3]);
        server.set_weights(&weights);
        for (path, format) in
            FORMATS.map(|format| (SPARSE, format)).into_iter().chain([(BOTH, "indices")])
        {
            let answer = ask(&server, path, &ids, &options, format);
            assert_eq!(answer, expected(format, &kept), "{case}, {path}, {format}");
        }
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
        let text = String::from_utf8(server.post(SPARSE, &body).body).expect("it is UTF-8");
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
                server.post(path, &body).refused("non_finite_output", "input");
            }
            server.post(DENSE, &body).ok();
        }
    }
    server.set_weights(&[0.5; 4]);
    server.post(SPARSE, &json!({"input": [[0, 5, 6, 2]]})).ok();
}
