//! What clients of text-embeddings-inference (TEI) send and read.

use serde_json::{Value, json};
use settings::limits::MaxItems;
use settings::{Config, Dialect};

use crate::fields::each;
use crate::support::{
    Answer, CUT, DENSE, HIDDEN, LONG_TEXT, MAX_TOKENS, MODEL, SPARSE, Server, Trouble, VOCAB,
    floats, number,
};

const EMBED: &str = "/embed";
const EMBED_SPARSE: &str = "/embed_sparse";

/// The parts of TEI's error body, and the answer's status.
#[track_caller]
fn error(answer: &Answer) -> (u16, String, String) {
    let body = answer.json();
    let fields = body.as_object().expect("an object");
    assert_eq!(fields.keys().map(String::as_str).collect::<Vec<_>>(), ["error", "error_type"]);
    let text = |name: &str| body[name].as_str().expect("a text").to_owned();
    (answer.status, text("error_type"), text("error"))
}

#[track_caller]
fn is_refused(answer: &Answer, status: u16, kind: &str, cure: &str) {
    let (found, found_kind, message) = error(answer);
    assert_eq!((found, found_kind.as_str()), (status, kind), "{message}");
    assert!(message.contains(cure), "{message}");
}

/// The vectors of an OpenAI answer, as TEI writes them.
fn dense(server: &Server, body: &Value) -> Value {
    let answer = server.post(DENSE, body).ok();
    let items = answer["data"].as_array().expect("a list").iter();
    items.map(|item| item["embedding"].clone()).collect()
}

#[test]
fn embed_gives_the_vectors_of_the_other_routes_as_bare_lists() {
    let server = Server::ready();
    for inputs in [json!("one"), json!(["one", "", "two words"])] {
        let expected = dense(&server, &json!({ "input": inputs }));
        for path in [EMBED, "/"] {
            let answer = server.post(path, &json!({ "inputs": inputs }));
            assert_eq!(answer.ok(), expected, "{path}");
            assert!(answer.header("server-timing").is_some());
            assert!(answer.header("x-compute-tokens").is_some());
        }
    }
}

#[test]
fn every_field_of_an_embed_request_is_obeyed() {
    let server = Server::ready();
    let ask = |key: &str, value: Value| json!({"inputs": ["two words"], key: value});
    let plain = server.post(EMBED, &json!({"inputs": ["two words"]})).ok();
    let usual = json!({
        "normalize": [true, false], "truncate": [true, "END"], "prompt_name": [null],
        "truncation_direction": ["Right", "right"], "dimensions": [HIDDEN], "prompt": [null],
        "parameters": [{"wait_for_model": true}], "truncation": [true], "output_dtype": ["float"],
        "embedding_types": [["float"]], "encoding_format": ["float"],
    });
    for (key, value) in each(&usual) {
        assert_eq!(server.post(EMBED, &ask(key, value.clone())).ok(), plain, "{key} {value}");
    }
    for (name, input_type) in [("query", "query"), ("passage", "passage"), ("document", "passage")]
    {
        let expected = json!({"input": ["two words"], "input_type": input_type});
        let expected = dense(&server, &expected);
        for field in ["prompt_name", "input_type", "task", "task_type"] {
            assert_eq!(server.post(EMBED, &ask(field, name.into())).ok(), expected, "{field}");
        }
    }
    for field in ["dimensions", "output_dimension", "truncate_dim"] {
        let cut = server.post(EMBED, &ask(field, json!(CUT))).ok();
        assert_eq!(cut[0].as_array().map(Vec::len), Some(CUT), "{field}");
    }
    let same = json!({
        "inputs": ["two words"], "task": "query", "prompt_name": "query", "input_type": "query",
        "dimensions": CUT, "output_dimension": CUT,
    });
    let expected = json!({"input": ["two words"], "input_type": "query", "dimensions": CUT});
    assert_eq!(server.post(EMBED, &same).ok(), dense(&server, &expected));
    for whole in [json!(false), json!("NONE")] {
        let whole = json!({"inputs": LONG_TEXT, "truncate": whole});
        is_refused(&server.post(EMBED, &whole), 400, "Validation", "truncate");
    }
}

#[test]
fn similarity_is_the_cosine_of_the_source_with_each_sentence() {
    let server = Server::ready();
    let ask = |body: &Value| server.post("/similarity", body);
    let pair = json!({"source_sentence": "one two", "sentences": ["one two", "three", ""]});
    for (parameters, input_type) in [
        (Value::Null, Value::Null),
        (json!({}), Value::Null),
        (json!({"prompt_name": "passage", "truncate": true}), json!("passage")),
    ] {
        let answer = ask(&json!({"inputs": pair, "parameters": parameters}));
        let found = floats(&answer.ok());
        assert!(answer.header("x-compute-tokens").is_some());
        let input = ["one two", "one two", "three", ""];
        let vectors = dense(&server, &json!({"input": input, "input_type": input_type}));
        let vectors: Vec<Vec<f32>> =
            vectors.as_array().expect("a list").iter().map(floats).collect();
        let dot =
            |other: &Vec<f32>| -> f32 { vectors[0].iter().zip(other).map(|(a, b)| a * b).sum() };
        let expected: Vec<f32> = vectors[1..].iter().map(dot).collect();
        assert_eq!(found.len(), 3);
        let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        assert!(found.iter().zip(&expected).all(near), "{found:?} {expected:?}");
        assert!((found[0] - 1.0).abs() < 1e-6, "{found:?}");
    }
    let long = json!({
        "inputs": {"source_sentence": "a", "sentences": [LONG_TEXT]},
        "parameters": {"truncate": false},
    });
    is_refused(&ask(&long), 400, "Validation", "truncate");
}

#[test]
fn a_wrong_comparison_is_refused_with_a_cure() {
    let with_parameters = |parameters: &str| {
        let inputs = r#"{"source_sentence": "a", "sentences": ["b"]}"#;
        format!(r#"{{"inputs": {inputs}, "parameters": {parameters}}}"#)
    };
    let server = Server::set(|set| set.http.max_items = number(3));
    for (body, cure) in [
        ("{}", "inputs is missing; send"),
        (r#"{"inputs": "a"}"#, "source_sentence"),
        (r#"{"inputs": {"sentences": ["a"]}}"#, "source_sentence"),
        (r#"{"inputs": {"source_sentence": "a"}}"#, "sentences"),
        (r#"{"inputs": {"source_sentence": "a", "sentences": []}}"#, "empty list"),
        (r#"{"inputs": {"source_sentence": "a", "sentences": [1]}}"#, "sentences"),
        (r#"{"inputs": {"source_sentence": ["a", "b"], "sentences": ["c"]}}"#, "source_sentence"),
        (r#"{"inputs": {"source_sentence": "a", "sentences": ["b", "c", "d"]}}"#, "3 items"),
        (&with_parameters(r#"{"prompt_name": "x"}"#), "parameters"),
        (&with_parameters("[null]"), "parameters"),
        (r#"{"inputs": ["a", ["b"]]}"#, "inputs"),
    ] {
        is_refused(&server.post_bytes("/similarity", body), 400, "Validation", cure);
    }
    // Some clients send it to the root.
    let pair = json!({"inputs": {"source_sentence": "a", "sentences": ["b"]}});
    is_refused(&server.post("/", &pair), 400, "Validation", "/similarity");
    server.post("/similarity", &pair).ok();
}

#[test]
fn embed_sparse_lists_an_index_and_a_value_for_each_weight() {
    let server = Server::ready();
    let inputs = ["one two", ""];
    let expected = server.post(SPARSE, &json!({ "input": inputs })).ok();
    let found = server.post(EMBED_SPARSE, &json!({ "inputs": inputs })).ok();
    for item in 0..2 {
        let values = &expected["data"][item]["sparse_values"];
        let pairs = found[item].as_array().expect("a list");
        let column = |name: &str| pairs.iter().map(|pair| pair[name].clone()).collect::<Value>();
        assert_eq!((&column("index"), &column("value")), (&values["indices"], &values["values"]));
    }
    assert_eq!(found[1], json!([]));
}

#[test]
fn token_ids_are_those_of_the_model() {
    let server = Server::set(|set| set.token_input = Config::default().token_input);
    let answer = server.post(EMBED, &json!({"inputs": [[100, 101], [102]]})).ok();
    let ids = json!({"input": [[100, 101], [102]], "token_encoding": "model"});
    assert_eq!(answer, dense(&server, &ids));
    let unknown = json!({"inputs": [[100], [101, VOCAB]]});
    is_refused(&server.post(EMBED, &unknown), 400, "Validation", "item 1, at position 1");
}

#[test]
fn a_wrong_body_is_refused_in_teis_form_with_a_cure() {
    let server = Server::set(|set| {
        set.http.max_items = number(3);
        set.http.max_item_bytes = number(64);
    });
    let long = "x".repeat(65);
    let rows = [
        ("", "the body is empty"),
        ("{", "not valid JSON"),
        ("[1]", r#"{"inputs": "a text"}"#),
        ("{}", "inputs is missing; send a text"),
        (r#"{"input":"a"}"#, "inputs is missing; send a text"),
        (r#"{"inputs":null}"#, "inputs is missing; send a text"),
        (r#"{"inputs":[]}"#, "inputs is an empty list; send an item"),
        (r#"{"inputs":["a",1]}"#, "inputs[1] is a token id and the first item is a text"),
        (r#"{"inputs":"a","inputs":"b"}"#, "inputs comes twice"),
        (r#"{"inputs":["a","b","c","d"]}"#, "more than 3 items"),
        (&format!(r#"{{"inputs":["a","{long}"]}}"#), "item 1 is too large"),
        (r#"{"inputs":"a","truncate":"START"}"#, "truncate must be true or false"),
        (r#"{"inputs":"a","truncation_direction":"left"}"#, r#"must be "right""#),
        (r#"{"inputs":"a","prompt_name":"s2p"}"#, r#"must be "query" or "passage""#),
        (r#"{"inputs":"a","prompt_name":"clustering"}"#, "leave prompt_name out"),
        (r#"{"inputs":"a","task":"x"}"#, r#"task must be "query" or "passage""#),
        (r#"{"inputs":"a","task":"query","task":"query"}"#, "task comes twice"),
        (r#"{"inputs":"a","task":"query","prompt_name":"passage"}"#, "prompt_name and task differ"),
        (
            r#"{"inputs":"a","dimensions":4,"output_dimension":8}"#,
            "output_dimension and dimensions differ",
        ),
        (r#"{"inputs":"a","output_dtype":"int4"}"#, r#"output_dtype must be "float""#),
        (r#"{"inputs":"a","encoding_format":"base64"}"#, "/v1/embeddings gives base64"),
        (r#"{"inputs":"a","embedding_type":"base64"}"#, "embedding_type must be \"float\" here"),
        (r#"{"inputs":"a","prompt":"x"}"#, "prompt must be null (write a prompt in front"),
        (r#"{"inputs":"a","normalized":false}"#, "normalized must be true"),
        (
            r#"{"inputs":"a","output_dimension":5}"#,
            "output_dimension 5 is not supported; use 4 or 8",
        ),
        (r#"{"inputs":"a","normalize":1}"#, "normalize must be true or false"),
        (r#"{"inputs":"a","dimensions":0}"#, "dimensions must be"),
        (r#"{"inputs":"a","dimensions":5}"#, "use 4 or 8"),
    ];
    for path in [EMBED, "/"] {
        for (body, cure) in &rows {
            is_refused(&server.post_bytes(path, *body), 400, "Validation", cure);
        }
    }
}

#[test]
fn what_the_model_cannot_do_is_refused_as_tei_refuses_it() {
    let server = Server::ready();
    let rows = [
        ("/predict", &json!({"inputs": "a"}), "model is not a classifier model"),
        ("/embed_all", &json!({"inputs": "a"}), "/embed"),
    ];
    for (path, body, message) in rows {
        is_refused(&server.post(path, body), 424, "Backend", message);
    }
    let dense_only = Server::set(|set| set.has_sparse = false);
    let answer = dense_only.post(EMBED_SPARSE, &json!({"inputs": "a"}));
    is_refused(&answer, 424, "Backend", "no lexical weights");
}

#[test]
fn faults_of_the_server_have_teis_form_too() {
    let server = Server::loading();
    for path in [EMBED, "/", "/rerank"] {
        let answer = server.post(path, &json!({"inputs": "a"}));
        is_refused(&answer, 503, "Unhealthy", "being loaded");
        assert!(answer.header("retry-after").is_some());
    }
    is_refused(&server.get("/ping"), 503, "Unhealthy", "loading");
    server.become_ready();
    server.prepare(Trouble::Engine);
    let failed = server.post(EMBED, &json!({"inputs": "a"}));
    is_refused(&failed, 500, "Backend", "x-request-id");
    server.prepare(Trouble::QueueFull);
    let full = server.post(EMBED, &json!({"inputs": "a"}));
    is_refused(&full, 429, "Overloaded", "Retry-After");
    assert!(full.header("retry-after").is_some());
}

#[test]
fn info_tells_of_the_model_and_the_limits() {
    let info = Server::ready().get("/info").ok();
    let expected = json!({
        "model_id": MODEL, "model_type": {"embedding": {"pooling": "mean"}},
        "max_input_length": MAX_TOKENS, "max_client_batch_size": MaxItems::DEFAULT.get(),
        "auto_truncate": true, "version": env!("CARGO_PKG_VERSION"),
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(info[field], *value, "{field}");
    }
}

#[test]
fn turned_off_its_routes_are_unknown() {
    let server = Server::set(|set| set.http.dialects = vec![Dialect::OpenAi, Dialect::Nim]);
    for path in [EMBED, EMBED_SPARSE, "/rerank", "/predict", "/embed_all"] {
        server.post(path, &json!({"inputs": "a"})).refused("not_found", "");
    }
    let root = server.post("/", &json!({"inputs": "a"}));
    assert!(matches!(root.status, 404 | 405), "{root:?}");
    let server = Server::set(|set| set.http.dialects = vec![Dialect::Tei]);
    server.post(EMBED, &json!({"inputs": "a"})).ok();
    for path in [DENSE, SPARSE] {
        server.post(path, &json!({"input": "a"})).refused("not_found", "");
    }
}

#[test]
fn tokens_stand_where_they_are_in_the_text_as_sent() {
    let server = Server::ready();
    let tokens = server.post("/tokenize", &json!({"inputs": "one  two"})).ok();
    let token = |id: u32, text: &str, start: Option<usize>| {
        let stop = start.map(|start| start + text.len());
        json!({"id": id, "text": text, "special": start.is_none(), "start": start, "stop": stop})
    };
    let word = |id, text, start| token(id, text, Some(start));
    let words = [word(100, "one", 0), word(101, "two", 5)];
    let all = [token(0, "<s>", None), words[0].clone(), words[1].clone(), token(2, "</s>", None)];
    assert_eq!(tokens, json!([all]));
    let bare = json!({"inputs": ["one  two", "", "ä two"], "add_special_tokens": false});
    let bare = server.post("/tokenize", &bare).ok();
    assert_eq!(bare[0], json!(words));
    assert_eq!(bare[1], json!([]));
    // In bytes.
    assert_eq!(bare[2][1], word(101, "two", 3));
    let prompt = json!({"inputs": "two", "prompt_name": "query", "add_special_tokens": false});
    let prompt = server.post("/tokenize", &prompt).ok();
    assert_eq!((&prompt[0][0]["text"], &prompt[0][0]["start"]), (&json!("query:"), &Value::Null));
    assert_eq!(prompt[0][1], word(101, "two", 0));
}

#[test]
fn ids_stand_for_the_text_that_was_tokenized() {
    let server = Server::ready();
    let decoded = |ids: Value| server.post("/decode", &json!({ "ids": ids })).ok();
    assert_eq!(decoded(json!([0, 100, 101, 2])), json!(["one two"]));
    assert_eq!(decoded(json!([[101], [], [0, 2]])), json!(["two", "", ""]));
    let kept = json!({"ids": [0, 100, 2], "skip_special_tokens": false});
    assert_eq!(server.post("/decode", &kept).ok(), json!(["<s> one </s>"]));
    let unknown = server.post("/decode", &json!({"ids": [[100], [101, VOCAB]]}));
    is_refused(&unknown, 400, "Validation", "item 1, at position 1");
}

#[test]
fn tokens_and_ids_of_a_wrong_form_are_refused_with_a_cure() {
    let server = Server::ready();
    for (path, body, cure) in [
        ("/tokenize", json!({}), "inputs is missing; send a text or a list of texts"),
        ("/tokenize", json!({"inputs": [1, 2]}), "inputs must be a text or a list of texts"),
        ("/tokenize", json!({"inputs": "a", "add_special_tokens": 1}), "true or false"),
        ("/tokenize", json!({"inputs": "a", "prompt_name": "x"}), "must be \"query\""),
        ("/decode", json!({}), "ids is missing; send a list of token ids"),
        ("/decode", json!({"ids": "a"}), "ids must be a list of token ids"),
        ("/decode", json!({"ids": ["a"]}), "ids must be a list of token ids"),
        ("/decode", json!({"ids": [1, "a"]}), "ids[1] is a text"),
        ("/decode", json!({"ids": [1], "skip_special_tokens": "no"}), "true or false"),
    ] {
        is_refused(&server.post(path, &body), 400, "Validation", cure);
    }
}
