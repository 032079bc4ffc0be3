//! What clients of text-embeddings-inference (TEI) send and read.

use settings::limits::MaxItems;
use settings::{Config, Dialect};

use crate::fields::each;
use crate::support::*;

const EMBED: &str = "/embed";
const EMBED_SPARSE: &str = "/embed_sparse";

/// A refusal in TEI's form, whose message has these words.
#[track_caller]
pub(crate) fn is_refused(answer: &Answer, status: u16, kind: &str, words: &str) {
    let body = answer.json();
    let keys: Vec<_> = body.as_object().into_iter().flat_map(|body| body.keys()).collect();
    assert_eq!(keys, ["error", "error_type"], "{} is not refused: {body}", answer.asked);
    assert_eq!((answer.status, &body["error_type"]), (status, &json!(kind)), "{}", answer.asked);
    let said = body["error"].as_str().is_some_and(|text| text.contains(words));
    assert!(said, "'{words}' is not in: {body} of {}", answer.asked);
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
}

#[test]
fn similarity_is_the_cosine_of_the_source_with_each_sentence() {
    let server = Server::ready();
    let ask = |body: &Value| server.post("/similarity", body);
    let pair = json!({"source_sentence": "one two", "sentences": ["one two", "three", ""]});
    for (parameters, input_type) in [
        (Value::Null, Value::Null),
        (json!({}), Value::Null),
        (json!({"prompt_name": "passage", "truncate": "END"}), json!("passage")),
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
}

/// Routes, a body that they refuse, and what they say of it. LONG is above the size of an item,
/// WORDS has more tokens than the model takes, and PAIR is a comparison that is right.
const REFUSED: &str = r#"
/embed / | | the body is empty
/embed / | { | not valid JSON
/embed / | [1] | {"inputs": "a text"}
/embed / | {} | inputs is missing; send a text
/embed / | {"input":"a"} | inputs is missing; send a text
/embed / | {"inputs":null} | inputs is missing; send a text
/embed / | {"inputs":[]} | inputs is an empty list; send an item
/embed / | {"inputs":["a",1]} | inputs[1] is a token id and the first item is a text
/embed / | {"inputs":"a","inputs":"b"} | inputs comes twice
/embed / | {"inputs":["a","b","c","d"]} | more than 3 items
/embed / | {"inputs":["a","LONG"]} | item 1 is too large
/embed / | {"inputs":[[100],[101,1000]]} | item 1, at position 1
/embed / | {"inputs":"WORDS","truncate":false} | truncate
/embed / | {"inputs":"WORDS","truncate":"NONE"} | truncate
/embed / | {"inputs":"a","truncate":"START"} | truncate must be true or false
/embed / | {"inputs":"a","truncation_direction":"left"} | must be "right"
/embed / | {"inputs":"a","prompt_name":"s2p"} | must be "query" or "passage"
/embed / | {"inputs":"a","prompt_name":"clustering"} | leave prompt_name out
/embed / | {"inputs":"a","task":"x"} | task must be "query" or "passage"
/embed / | {"inputs":"a","task":"query","task":"query"} | task comes twice
/embed / | {"inputs":"a","task":"query","prompt_name":"passage"} | prompt_name and task differ
/embed / | {"inputs":"a","dimensions":4,"truncate_dim":8} | truncate_dim and dimensions differ
/embed / | {"inputs":"a","output_dtype":"int4"} | output_dtype must be "float"
/embed / | {"inputs":"a","encoding_format":"base64"} | /v1/embeddings gives base64
/embed / | {"inputs":"a","embedding_type":"base64"} | embedding_type must be "float" or a type
/embed / | {"inputs":"a","prompt":"x"} | prompt must be null (write a prompt in front
/embed / | {"inputs":"a","normalized":false} | normalized must be true
/embed / | {"inputs":"a","output_dimension":5} | output_dimension 5 is not supported; use 4 or 8
/embed / | {"inputs":"a","normalize":1} | normalize must be true or false
/embed / | {"inputs":"a","dimensions":0} | dimensions must be
/embed / | {"inputs":"a","dimensions":5} | use 4 or 8
/ | {"inputs":PAIR} | /similarity
/similarity | {} | inputs is missing; send
/similarity | {"inputs":"a"} | source_sentence
/similarity | {"inputs":{"sentences":["a"]}} | inputs.source_sentence is missing; send a text
/similarity | {"inputs":{"source_sentence":"a"}} | inputs.sentences is missing; send a text
/similarity | {"inputs":{"source_sentence":"a","sentences":[]}} | is an empty list; send a text
/similarity | {"inputs":{"source_sentence":[],"sentences":["a"]}} | empty list; send a text
/similarity | {"inputs":{"source_sentence":1,"sentences":["a"]}} | is a number; send a text or
/similarity | {"inputs":{"source_sentence":"a","sentences":[1]}} | sentences[0] is a token id
/similarity | {"inputs":{"source_sentence":"a","source_sentence":"b"}} | sentence comes twice
/similarity | {"inputs":{"source_sentence":"a","sentences":["b","LONG"]}} | inputs.sentences[1] is
/similarity | {"inputs":{"source_sentence":"LONG","sentences":["b"]}} | source_sentence is too
/similarity | {"inputs":{"source_sentence":["a","b"],"sentences":["c"]}} | source_sentence
/similarity | {"inputs":{"source_sentence":"a","sentences":["b","c","d"]}} | 3 items
/similarity | {"inputs":PAIR,"parameters":{"prompt_name":"x"}} | parameters
/similarity | {"inputs":PAIR,"parameters":[null]} | parameters
/similarity | {"inputs":PAIR,"parameters":{"truncate":false}} | item 0 has
/similarity | {"inputs":PAIR,"parameters":{"truncate":"NONE"}} | item 0 has
/similarity | {"inputs":PAIR,"parameters":{"truncate":true,"truncate":true}} | .truncate comes twice
/similarity | {"inputs":["a",["b"]]} | inputs
/rerank | {"query":null,"texts":["a"]} | send a text
/rerank | {"query":"a","texts":["b"],"truncation_direction":"Left"} | "right"
/rerank | {"query":"a","texts":["b"],"raw_scores":1} | true or false
/rerank | {"query":"a","texts":[["b"]]} | texts[0] is a list; send a text or an object with text
/rerank | {"query":"a","texts":[17]} | texts[0] is a token id; send a text or an object with text
/tokenize | {} | inputs is missing; send a text or a list of texts
/tokenize | {"inputs":[1,2]} | inputs[0] is a token id; send a text
/tokenize | {"inputs":[["a"]]} | inputs[0] is a list; send a text
/tokenize | {"inputs":"a","add_special_tokens":1} | true or false
/tokenize | {"inputs":"a","prompt_name":"x"} | must be "query"
/decode | {} | ids is missing; send a list of token ids
/decode | {"ids":"a"} | ids is a text; send a list of token ids
/decode | {"ids":["a"]} | ids[0] is a text; send a token id, or a list of token ids
/decode | {"ids":[-1]} | ids[0] is a number below zero; send a token id, or a list of token ids
/decode | {"ids":[1,"a"]} | ids[1] is a text
/decode | {"ids":[[100],[101,1000]]} | item 1, at position 1
/decode | {"ids":[1],"skip_special_tokens":"no"} | true or false
"#;

#[test]
fn a_wrong_body_is_refused_in_teis_form_with_a_cure() {
    let server = Server::set(|set| {
        set.http.max_items = number(3);
        set.http.max_item_bytes = number(64);
    });
    let pair = format!(r#"{{"source_sentence":"a","sentences":["{LONG_TEXT}"]}}"#);
    server.post_bytes("/similarity", format!(r#"{{"inputs":{pair}}}"#)).ok();
    for [routes, body, words] in rows(REFUSED) {
        let body = body.replace("LONG", &"x".repeat(65)).replace("WORDS", LONG_TEXT);
        let body = body.replace("PAIR", &pair);
        for path in routes.split(' ') {
            is_refused(&server.post_bytes(path, &*body), 400, "Validation", words);
        }
    }
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
    server.fault(Fault::Fail);
    let failed = server.post(EMBED, &json!({"inputs": "a"}));
    is_refused(&failed, 500, "Backend", "x-request-id");
    server.fill_queue();
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
        let answer = server.post(path, &json!({"inputs": "a"}));
        answer.refused("not_found", "").says("--dialects leaves out");
    }
    let root = server.post("/", &json!({"inputs": "a"}));
    assert!(matches!(root.status, 404 | 405), "{root:?}");
    let server = Server::set(|set| set.http.dialects = vec![Dialect::Tei]);
    server.post(EMBED, &json!({"inputs": "a"})).ok();
    for path in [DENSE, SPARSE] {
        let said = server.post(path, &json!({"input": "a"})).refused("not_found", "");
        assert!(!said.0.contains("base_url"), "{}", said.0);
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
}
