//! POST /v1/embeddings: OpenAI's shape, formats, dimensions, truncation.

use settings::TruncateDefault;

use crate::support::*;

fn length(row: &[f32]) -> f32 {
    row.iter().map(|value| value * value).sum::<f32>().sqrt()
}

#[test]
fn a_dense_answer_has_openais_shape() {
    let mut body = Server::ready().post(DENSE, &json!({"input": ["one", "two words"]})).ok();
    for item in body["data"].as_array_mut().expect("a list") {
        let row = floats(&item["embedding"].take());
        assert_eq!(row.len(), HIDDEN);
        assert!((length(&row) - 1.0).abs() < 1e-5);
    }
    let item = |index| json!({"object": "embedding", "index": index, "embedding": null});
    let expected = json!({
        "object": "list", "data": [item(0), item(1)], "model": MODEL,
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    });
    assert_eq!(body, expected);
}

#[test]
fn base64_holds_the_same_bits_as_the_floats() {
    let server = Server::ready();
    let ask = |format: Value| {
        let body = json!({"input": ["one", "two"], "encoding_format": format});
        server.post(DENSE, &body).ok()
    };
    let (plain, packed, absent) = (ask("float".into()), ask("base64".into()), ask(Value::Null));
    for index in 0..2 {
        let row = floats(&plain["data"][index]["embedding"]);
        assert_eq!(row, decode(&packed["data"][index]["embedding"]));
        assert_eq!(row, floats(&absent["data"][index]["embedding"]));
    }
}

#[test]
fn fewer_dimensions_are_cut_and_renormalized() {
    let server = Server::ready();
    let ask = |dimensions: Value| {
        let body = json!({"input": "one", "dimensions": dimensions});
        floats(&server.post(DENSE, &body).ok()["data"][0]["embedding"])
    };
    let (whole, cut) = (ask(HIDDEN.into()), ask(CUT.into()));
    assert_eq!(whole, ask(Value::Null));
    assert_eq!(cut.len(), CUT);
    assert!((length(&cut) - 1.0).abs() < 1e-5);
    let scale = length(&whole[..CUT]);
    for (kept, original) in cut.iter().zip(&whole) {
        assert!((kept * scale - original).abs() < 1e-5);
    }
}

/// A flat list of ids is one item, and what has no tokens is the empty text.
#[test]
fn texts_and_ids_have_a_vector_each_and_say_what_was_cut() {
    let server = Server::ready();
    for (input, truncated_from, tokens) in [
        (json!(""), [Value::Null].as_slice(), 2),
        (json!(" \n"), &[Value::Null], 2),
        (json!([""]), &[Value::Null], 2),
        (json!([[]]), &[Value::Null], 2),
        (json!([5, 6, 7]), &[Value::Null], 5),
        (json!([[5, 6, 7], [8]]), &[Value::Null, Value::Null], 5 + 3),
        (json!(["short", LONG_TEXT]), &[Value::Null, json!(LONG_TOKENS)], 3 + MAX_TOKENS),
    ] {
        for truncate in [Value::Null, json!(true)] {
            let answer = server.post(DENSE, &json!({"input": input, "truncate": truncate})).ok();
            let data = answer["data"].as_array().expect("a list");
            assert!(data.iter().map(|item| &item["truncated_from"]).eq(truncated_from), "{input}");
            assert!(data.iter().all(|item| floats(&item["embedding"]).len() == HIDDEN), "{input}");
            assert_eq!(answer["usage"]["prompt_tokens"], tokens, "{input}");
        }
    }
    let [flat, nested] = [json!([5, 6, 7]), json!([[5, 6, 7], [8]])]
        .map(|input| server.post(DENSE, &json!({ "input": input })).ok()["data"][0].take());
    assert_eq!(flat, nested);
}

#[test]
fn an_over_long_item_is_refused_when_truncation_is_off() {
    for (default, truncate) in
        [(TruncateDefault::Truncate, json!(false)), (TruncateDefault::Refuse, Value::Null)]
    {
        let server = Server::set(|set| set.http.truncate = default);
        let body = json!({"input": ["short", LONG_TEXT], "truncate": truncate});
        let said = server.post(DENSE, &body).refused("context_length_exceeded", "input");
        said.says("item 1").says(&LONG_TOKENS.to_string()).says(&MAX_TOKENS.to_string());
    }
}

#[test]
fn as_many_items_as_configured_are_taken_and_no_more() {
    let server = Server::set(|set| set.http.max_items = number(3));
    for item in [json!("a"), json!([5])] {
        let three = json!({"input": [item, item, item]});
        assert_eq!(server.post(DENSE, &three).ok()["data"].as_array().map(Vec::len), Some(3));
        let four = json!({"input": [item, item, item, item]});
        server.post(DENSE, &four).refused("too_many_items", "input").says("3");
    }
    // A flat list of ids is one item.
    server.post(DENSE, &json!({"input": [5, 6, 7, 8, 9]})).ok();
}

#[test]
fn large_requests_and_answers_are_whole_and_in_the_order_of_the_input() {
    let server = Server::set(|set| set.http.max_items = number(8000));
    // The tests' vocabulary has the numbers below fifty.
    let long = "ä".repeat(20);
    let texts: Vec<String> = (0..8000).map(|at| format!("{} {long}", at % 50)).collect();
    let body = server.post(DENSE, &json!({"input": texts})).ok();
    let data = body["data"].as_array().expect("a list");
    assert_eq!(data.len(), texts.len());
    assert!(data.iter().enumerate().all(|(index, item)| item["index"] == index));
    for index in [0, 17, 49, 7999] {
        let alone = server.post(DENSE, &json!({"input": texts[index]})).ok();
        assert_eq!(data[index]["embedding"], alone["data"][0]["embedding"], "{index}");
    }
}
