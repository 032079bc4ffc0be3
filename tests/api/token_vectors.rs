//! `token_vectors`: the vectors of a text's tokens, on all three routes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duovec::engine::fake::expected_token_vectors;
use half::f16;

use crate::support::*;

/// The vectors of a text's tokens from the place `from` on, of all its ids.
fn expected(ids: &[u32], from: usize) -> Vec<f32> {
    expected_token_vectors(ids, TOKEN_SIZE).split_off(from * TOKEN_SIZE)
}

fn assert_vectors(item: &Value, expected: &[f32]) {
    let found = &item["token_vectors"];
    assert_eq!(found["shape"], json!([expected.len() / TOKEN_SIZE, TOKEN_SIZE]), "{item}");
    assert_eq!(found["dtype"], "float32");
    assert_eq!(decode(&found["data"]), expected);
}

#[test]
fn each_token_but_the_first_has_a_vector_and_all_else_is_as_without_them() {
    let server = Server::ready();
    // Texts of one row, of several batches, of one token and of none.
    let texts = json!(["one two", "three", "", "two one"]);
    let ids: [&[u32]; 4] = [&[0, 100, 101, 2], &[0, 102, 2], &[0, 2], &[0, 101, 100, 2]];
    for route in ROUTES {
        let plain = server.post(route, &json!({ "input": texts })).ok();
        let mut found = server.post(route, &json!({"input": texts, "token_vectors": true})).ok();
        for (index, ids) in ids.iter().enumerate() {
            assert_vectors(&found["data"][index], &expected(ids, 1));
            found["data"][index].as_object_mut().expect("an item").remove("token_vectors");
        }
        assert_eq!(found, plain, "{route}");
        let unasked = json!({"input": texts, "token_vectors": false});
        assert_eq!(server.post(route, &unasked).ok(), plain, "{route}");
    }
}

#[test]
fn prompts_have_none_and_texts_that_are_cut_have_those_that_ran() {
    let server = Server::ready();
    let body = json!({"input": ["one", ""], "input_type": "query", "token_vectors": true});
    let found = server.post(BOTH, &body).ok();
    // The prompt is a token of its own.
    assert_vectors(&found["data"][0], &expected(&[0, 108, 100, 2], 2));
    assert_vectors(&found["data"][1], &expected(&[0, 108, 2], 2));
    let cut = server.post(BOTH, &json!({"input": LONG_TEXT, "token_vectors": true})).ok();
    let shape = &cut["data"][0]["token_vectors"]["shape"];
    assert_eq!(*shape, json!([MAX_TOKENS - 1, TOKEN_SIZE]));
    let ids = server.post(BOTH, &json!({"input": [[100, 101]], "token_vectors": true})).ok();
    assert_vectors(&ids["data"][0], &expected(&[0, 100, 101, 2], 1));
}

#[test]
fn half_floats_are_those_of_output_type() {
    let server = Server::ready();
    for (output_type, is_half) in [("float16", true), ("int8", false), ("base64", false)] {
        let body = json!({"input": "one", "token_vectors": true, "output_type": output_type});
        let item = server.post(DENSE, &body).ok()["data"][0].take();
        if !is_half {
            assert_vectors(&item, &expected(&[0, 100, 2], 1));
            continue;
        }
        let found = &item["token_vectors"];
        assert_eq!((&found["dtype"], &found["shape"]), (&json!("float16"), &json!([2, 3])));
        let bytes = STANDARD.decode(found["data"].as_str().expect("base64")).expect("base64");
        let halves = expected(&[0, 100, 2], 1).into_iter().map(f16::from_f32);
        assert_eq!(bytes, halves.flat_map(f16::to_le_bytes).collect::<Vec<u8>>());
    }
}

#[test]
fn a_chunk_has_those_of_its_own_tokens() {
    let server = Server::ready();
    let ids = [0, 100, 101, 102, 103, 2];
    for late in [true, false] {
        let by = json!({"by": "tokens", "size": 3, "overlap": 1, "late": late});
        let body = json!({"input": "one two three words", "token_vectors": true, "chunking": by});
        for route in ROUTES {
            let found = server.post(route, &body).ok();
            let chunks: [&[u32]; 2] = [&[0, 100, 101, 102, 2], &[0, 102, 103, 2]];
            for (index, chunk) in chunks.into_iter().enumerate() {
                let whole = expected(&ids, 0);
                let own = &whole[[1, 3][index] * TOKEN_SIZE..][..[3, 2][index] * TOKEN_SIZE];
                let expected = if late { own.to_vec() } else { expected(chunk, 1) };
                assert_vectors(&found["data"][index], &expected);
            }
        }
    }
}

#[test]
fn texts_with_and_without_them_share_neither_a_run_nor_a_kept_row() {
    let server = Server::set(|set| set.queue.cache_bytes = number(1 << 20));
    server.hold();
    let bodies = [r#"{"input":"one"}"#, r#"{"input":"one","token_vectors":true}"#];
    let streams = [0, 1, 0, 1].map(|body| server.open(post(BOTH, "", bodies[body])));
    server.wait_waiting(4);
    server.release();
    let [plain, with, also_plain, also_with] = streams.map(|mut stream| stream.answer().ok());
    assert_eq!((&plain, &with), (&also_plain, &also_with));
    assert!(plain["data"][0].get("token_vectors").is_none());
    assert_vectors(&with["data"][0], &expected(&[0, 100, 2], 1));
    assert_eq!(server.metric("duovec_items_coalesced_total"), 2.0);
    // One of them is kept, beside the texts that held the workers.
    assert_eq!(server.metric("duovec_cache_entries"), WORKERS as f64 + 1.0);
    let again = server.post(BOTH, &json!({"input": "one", "token_vectors": true}));
    assert_vectors(&again.ok()["data"][0], &expected(&[0, 100, 2], 1));
    assert!(again.header("server-timing").is_some_and(|told| told.ends_with("cache;desc=miss")));
}

#[test]
fn their_memory_is_asked_for_before_the_model_is_run() {
    let server = Server::set(|set| set.door.max_inflight_bytes = number(800_000));
    let texts = vec!["a b c d e f g h"; 700];
    server.post(BOTH, &json!({"input": texts, "sparse_top_k": 1})).ok();
    let before = server.accepted();
    let body = json!({"input": texts, "sparse_top_k": 1, "token_vectors": true});
    server.post(BOTH, &body).refused("request_too_large", "");
    assert_eq!(server.accepted(), before, "no item came to the queue");
    let few = json!({"input": texts[..300], "sparse_top_k": 1, "token_vectors": true});
    server.post(BOTH, &few).ok();
    server.wait_until("all is given back", |server| server.metric("duovec_inflight_bytes") == 0.0);
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let refused = r#"
        {"input":"a","token_vectors":1} | invalid_value token_vectors | true or false
        {"input":"a","token_vectors":"yes"} | invalid_value token_vectors | true or false
        {"input":"","token_vectors":true,"token_vectors":1} | duplicate_field token_vectors | once
    "#;
    let server = Server::ready();
    server.refuses(&ROUTES, refused);
    let table = json!({"input": "one", "input_type": "query", "lexical": "table",
                       "token_vectors": true});
    server.post(SPARSE, &table).refused("invalid_value", "lexical").says("leave one of them out");
    let dense_only = Server::of(Gives::Dense);
    let refused = dense_only.post(DENSE, &json!({"input": "a", "token_vectors": true}));
    refused.refused("invalid_value", "token_vectors").says("leave token_vectors out");
    for (server, size) in [(&server, json!(TOKEN_SIZE)), (&dense_only, Value::Null)] {
        let models = server.get("/v1/models").ok();
        assert_eq!(models["data"][0]["token_vector_size"], size);
    }
}
