//! POST /v1/tokenize: ids, pieces and offsets of the text as sent.

use tiktoken_rs::cl100k_base_singleton;

use crate::support::*;

const TOKENIZE: &str = "/v1/tokenize";

fn ask(server: &Server, body: &Value) -> Value {
    server.post(TOKENIZE, body).ok()["data"].take()
}

#[test]
fn tokens_have_ids_pieces_and_offsets_in_code_points() {
    let server = Server::ready();
    let answer = server.post(TOKENIZE, &json!({"input": ["😀 one  two", ""]})).ok();
    let expected = json!({
        "object": "list",
        "data": [
            {
                "object": "tokens", "index": 0, "ids": [0, 3, 100, 101, 2],
                "pieces": ["<s>", "<unk>", "one", "two", "</s>"],
                "offsets": [null, [0, 1], [2, 5], [7, 10], null],
            },
            {
                "object": "tokens", "index": 1, "ids": [0, 2], "pieces": ["<s>", "</s>"],
                "offsets": [null, null],
            },
        ],
        "model": MODEL,
        "max_input_tokens": MAX_TOKENS,
    });
    assert_eq!(answer, expected);
}

/// `input_type`, `input`, the pieces of its tokens, and their places in the text. Tokens of a
/// prompt that the request names have no place in the text, and those of ids have none: the client
/// does not have the text that ids of another vocabulary stand for. IDS are those of "one two".
const PLACES: &str = r#"
"query" | "one" | <s> query: one </s> | [null,null,[0,3],null]
null | "passage: one" | <s> passage: one </s> | [null,null,[9,12],null]
"query" | "passage: one" | <s> passage: one </s> | [null,null,[9,12],null]
"passage" | "passage: one" | <s> passage: one </s> | [null,null,[9,12],null]
"query" | "one query: two" | <s> query: one query: two </s> | [null,null,[0,3],[4,10],[11,14],null]
null | [100,101] | <s> one two </s> | [null,null,null,null]
null | [[]] | <s> </s> | [null,null]
null | IDS | <s> one two </s> | [null,null,null,null]
"#;

#[test]
fn tokens_have_pieces_and_those_of_the_text_have_their_places_in_it() {
    let server = Server::ready();
    let ids = format!("{:?}", cl100k_base_singleton().encode_ordinary("one two"));
    let json = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    for [input_type, input, pieces, offsets] in rows(PLACES) {
        let encoding = (input == "IDS").then_some("cl100k_base");
        let input = json(&input.replace("IDS", &ids));
        let body =
            json!({"input": input, "input_type": json(input_type), "token_encoding": encoding});
        let tokens = ask(&server, &body);
        let pieces: Vec<&str> = pieces.split(' ').collect();
        assert_eq!((&tokens[0]["pieces"], &tokens[0]["offsets"]), (&json!(pieces), &json(offsets)));
        let ran = server.post(DENSE, &body).ok()["usage"]["prompt_tokens"].take();
        assert_eq!(ran, pieces.len(), "they are those that are run");
    }
}

#[test]
fn no_token_is_cut() {
    let server = Server::ready();
    let words = 3 * MAX_TOKENS;
    let (text, ids) = (json!(vec!["one"; words].join(" ")), json!(vec![100; words]));
    for (input, truncate, last) in [
        (&text, true, json!([188, 191])),
        (&text, false, json!([188, 191])),
        // The text of ids is not known.
        (&ids, true, Value::Null),
    ] {
        let tokens = ask(&server, &json!({"input": input, "truncate": truncate}));
        let found = tokens[0]["ids"].as_array().expect("a list");
        assert_eq!(found.len(), words + 2);
        assert_eq!((&found[0], &found[words + 1]), (&json!(0), &json!(2)));
        assert_eq!(tokens[0]["offsets"].as_array().map(Vec::len), Some(words + 2));
        assert_eq!(tokens[0]["offsets"][words], last);
    }
}

#[test]
fn tokenizing_waits_for_no_worker() {
    let server = Server::ready();
    server.fill_queue();
    assert_eq!(server.post(DENSE, &json!({"input": "one"})).status, 429);
    assert_eq!(ask(&server, &json!({"input": "one"}))[0]["ids"], json!([0, 100, 2]));
    server.post("/tokenize", &json!({"inputs": "one"})).ok();
    server.post("/decode", &json!({"ids": [100]})).ok();
}

const REFUSED: &str = r#"
{} | invalid_input input | missing
{"input":[]} | invalid_input input | empty list
{"input":[1,"one"]} | invalid_input input | [1] is a text
{"input":[1000000]} | token_id_out_of_range input | 1000000
{"input":"one","input_type":"x"} | invalid_value input_type | must be
{"input":"one","model":"other"} | model_not_found model | org/stub-model
[] | invalid_json | one JSON object
"#;

#[test]
fn bad_requests_to_tokenize_are_refused() {
    Server::ready().refuses(&[TOKENIZE], REFUSED);
}

#[test]
fn tokens_count_among_the_bytes_in_flight() {
    let server = Server::set(|set| set.door.max_inflight_bytes = number(1 << 20));
    let fits = json!({"input": vec!["a ".repeat(1000); 2]});
    assert_eq!(ask(&server, &fits).as_array().map(Vec::len), Some(2));
    // Far fewer bytes of text than there is room for, and more tokens. No retry would help.
    for path in [TOKENIZE, "/tokenize"] {
        let texts = vec!["a ".repeat(15_000); 2];
        let refused = server.post(path, &json!({"input": texts, "inputs": texts}));
        assert_eq!(refused.status, 413, "{path}");
        let message = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(message.contains("fewer or shorter texts"), "{message}");
        assert_eq!(refused.header("retry-after"), None);
    }
    server.post(TOKENIZE, &fits).ok();
    // One that fits an idle server waits for others.
    let whole = post(DENSE, "", &" ".repeat(800_000));
    let _other = server.open(&whole[..whole.len() - 400_000]);
    server.wait_until("the other is let in", |server| {
        server.metric("duovec_inflight_bytes") == 800_000.0
    });
    let large = json!({"input": vec!["a ".repeat(1000); 6]});
    server.post(TOKENIZE, &large).refused("inflight_bytes_exceeded", "");
}
