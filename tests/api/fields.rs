//! The rules of each field, on all three routes.

use settings::limits::MaxRequestTimeoutMs;

use crate::support::*;

/// Each value of each field of an object of lists.
pub(crate) fn each(fields: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = fields.as_object().expect("an object").iter();
    fields.flat_map(|(field, values)| {
        values.as_array().expect("a list").iter().map(|value| (&**field, value))
    })
}

fn with(key: &str, value: Value) -> Value {
    let mut body = json!({"input": "text"});
    body[key] = value;
    body
}

#[rustfmt::skip]
const OPTIONAL: [&str; 25] = [
    "model", "encoding_format", "dimensions", "user", "input_type", "truncate", "sparse_format",
    "sparse_top_k", "sparse_min_weight", "offsets", "task", "task_type", "prompt_name", "prompt",
    "output_dimension", "truncate_dim", "output_dtype", "embedding_type", "embedding_types",
    "truncation", "normalized", "output_type", "embed_dtype", "lexical",
    "token_vectors",
];

#[test]
fn null_is_absent_for_every_optional_field() {
    let server = Server::ready();
    for path in ROUTES {
        let bare = server.post(path, &json!({"input": "text"})).ok();
        for key in OPTIONAL {
            assert_eq!(server.post(path, &with(key, Value::Null)).ok(), bare, "{path} {key}");
        }
    }
}

#[test]
fn unknown_fields_and_user_are_ignored() {
    let server = Server::ready();
    let bare = server.post(DENSE, &json!({"input": "text"})).ok();
    for value in [json!({"input": [1]}), json!([[[]]]), json!(-1.5), json!("\u{0}"), json!(true)] {
        for key in ["user", "extra", "Input", "input ", ""] {
            assert_eq!(server.post(DENSE, &with(key, value.clone())).ok(), bare, "{key} {value}");
        }
    }
    let twice = r#"{"x":1,"x":2,"input":"text"}"#;
    assert_eq!(server.post_bytes(DENSE, twice).ok(), bare);
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let deep = format!("{{\"input\":\"text\",\"extra\":{deep},\"user\":{deep}}}");
    assert_eq!(server.post_bytes(DENSE, deep).ok(), bare);
}

/// Routes with fields that change an answer, a body that each takes, and slips in their names.
const SLIPS: &str = r#"
/v1/embeddings /v1/sparse-embeddings | {"input":"text"} | input_typ imput_type inputType dimension
/v1/embeddings:both | {"input":"text"} | dimesnions encoding_fromat truncte prompt_nam taks_type
/v1/embeddings:both | {"input":"text"} | output_dtypes sparse_topk sparse_min_wieght late_chunkin
/v1/tokenize | {"input":"text"} | input_typ
/v1/rerank /v2/rerank | {"query":"a","documents":["b"]} | truncat return_document
/embed /embed_sparse / | {"inputs":"text"} | dimension prompt_nam truncation_directon
/rerank | {"query":"a","texts":["b"]} | raw_score return_texts
/tokenize | {"inputs":"text"} | promt_name add_special_token
/decode | {"ids":[2]} | skip_special_token
"#;

#[test]
fn a_slip_in_the_name_of_a_field_is_refused_and_both_names_are_told() {
    let server = Server::ready();
    for [paths, body, slips] in rows(SLIPS) {
        for (path, slip) in paths.split(' ').flat_map(|p| slips.split(' ').map(move |s| (p, s))) {
            let mut body: Value = serde_json::from_str(body).expect("an object");
            body[slip] = json!("query");
            let answer = server.post(path, &body);
            assert_eq!(answer.status, 400, "{path} {slip}: {}", answer.text());
            let told = format!("{slip} is not a field; did you mean ");
            assert!(answer.text().contains(&told), "{path}: {}", answer.text());
        }
    }
    let said = server.post(DENSE, &with("input_typ", json!("query")));
    said.refused("invalid_value", "input_type").says("did you mean input_type?");
    let inputs = json!({"source_sentence": "a", "sentences": ["b"]});
    let body = json!({"inputs": inputs, "parameters": {"promt_name": "query"}});
    let said = server.post("/similarity", &body).text();
    assert!(said.contains("parameters.promt_name is not a field; did you mean prompt_name?"));
}

/// What clients of other servers send, and what changes no vector.
#[rustfmt::skip]
const OTHERS: [&str; 20] = [
    "users", "models", "inputs", "normalize", "normalise", "top_p", "store", "tasks", "top_n",
    "truncate_prompt_tokens", "truncation_direction", "add_special_tokens", "options", "priority",
    "keep_alive", "metadata", "modality", "endianness", "max_tokens", "return_multivector",
];

#[test]
fn fields_of_other_servers_are_no_slips() {
    let server = Server::ready();
    for path in ROUTES {
        let bare = server.post(path, &json!({"input": "text"})).ok();
        for key in OTHERS {
            assert_eq!(server.post(path, &with(key, json!([1]))).ok(), bare, "{path} {key}");
        }
    }
    let body = json!({"inputs": "text", "input": "text", "normalise": 1});
    assert_eq!(server.post("/embed", &body).status, 200);
    let body =
        json!({"query": "a", "documents": ["b"], "top_p": 1, "store": true, "rank_fields": 1});
    server.post("/v1/rerank", &body).ok();
}

/// To compare names takes longer than to read them.
#[test]
fn of_many_unknown_fields_the_first_are_compared() {
    let server = Server::ready();
    let others: String = (0..16).map(|at| format!("\"sparse_other{at}\":1,")).collect();
    let body = |others: &str| format!("{{{others}\"input_typ\":\"query\",\"input\":\"text\"}}");
    server.post_bytes(DENSE, body(&others)).ok();
    let few = others.split_inclusive(',').skip(1).collect::<String>();
    server.post_bytes(DENSE, body(&few)).refused("invalid_value", "input_type");
}

/// A field, values that it is refused for on every route, and what the message says.
const REFUSED: &str = r#"
model | [1, ["a"]] | must be
encoding_format | ["hex", "Float", true] | must be
dimensions | [0, -4, 4.0, "4"] | must be
dimensions | [18446744073709552000] | within 64 bits
dimensions | [5, 18446744073709551615] | is not supported…use 4 or 8
output_dimension | [5] | output_dimension 5 is not…use 4 or 8
truncate_dim | [5] | truncate_dim 5 is not…use 4 or 8
output_dimension | [0] | must be
truncate_dim | [0] | must be
input_type | ["text", 0] | must be
input_type | ["classification", "clustering"] | no prompt for this use…leave input_type out
truncate | ["true", 1, "end", "none", "MIDDLE", ""] | must be
truncate | ["START"] | "NONE" or "END"…"START"
sparse_format | ["coo", {}] | must be
sparse_top_k | [0, -1, 1.0, "1"] | must be
sparse_min_weight | [-0.1, -1, "0", [0]] | must be
lexical | ["tables", 1] | "head" or "table"…left out
task | ["rerank"] | "query" or "passage"…left out
task | ["text-matching", "separation"] | no prompt for this use…leave task out
task_type | ["x"] | "query" or "passage"…left out
task_type | ["SEMANTIC_SIMILARITY", "CLUSTERING"] | no prompt for this use…leave task_type out
token_encoding | ["p50k_base"] | model…cl100k_base…o200k_base
prompt_name | ["s2p_query"] | "query" or "passage"…left out
prompt | ["query: ", ""] | in front of each text…left out
output_type | ["int4", 8, true] | "float"…left out
output_dtype | ["INT8"] | "float"…left out
embedding_type | ["bits"] | "float"…left out
embedding_types | [["hex"], ["float", "int8"], []] | "float"…left out
embed_dtype | ["fp8_e4m3"] | "float"…left out
truncation | ["END"] | true or false…left out
normalized | [false] | length one…left out
"#;

#[test]
fn values_that_break_a_rule_name_their_field_and_a_cure_on_every_route() {
    let server = Server::ready();
    for [field, values, words] in rows(REFUSED) {
        let code = if field.contains("dim") { "invalid_dimensions" } else { "invalid_value" };
        let values: Vec<Value> = serde_json::from_str(values).expect("a list");
        for value in values {
            let row = format!("{} | {code} {field} | {words}", with(field, value));
            server.refuses(&ROUTES, &row);
        }
    }
}

#[test]
fn words_of_other_services_for_the_use_of_texts_mean_what_they_say() {
    let server = Server::ready();
    let words = json!({
        "query": {
            "task": ["retrieval.query", "code.query"],
            "task_type": ["RETRIEVAL_QUERY", "QUESTION_ANSWERING", "search_query"],
            "prompt_name": ["query"], "input_type": ["search_query"],
        },
        "passage": {
            "task": ["retrieval.passage"], "task_type": ["RETRIEVAL_DOCUMENT", "search_document"],
            "prompt_name": ["passage", "document"], "input_type": ["search_document", "document"],
        },
    });
    for (input_type, words) in words.as_object().expect("an object") {
        for path in ROUTES {
            let expected = server.post(path, &with("input_type", (**input_type).into())).ok();
            for (field, word) in each(words) {
                let found = server.post(path, &with(field, word.clone())).ok();
                assert_eq!(found, expected, "{path} {field} {word}");
            }
        }
    }
}

#[test]
fn passages_have_no_prompt_where_the_model_has_one_for_queries_alone() {
    let server = Server::of(Gives::Dense);
    for (field, value, tokens) in [
        ("user", Value::Null, 4),
        ("input_type", "query".into(), 4),
        ("input_type", "passage".into(), 3),
        ("task_type", "RETRIEVAL_DOCUMENT".into(), 3),
        ("model", format!("{MODEL}-query").into(), 4),
        ("model", format!("{MODEL}-passage").into(), 3),
    ] {
        let answer = server.post(DENSE, &with(field, value));
        assert_eq!(answer.ok()["usage"]["prompt_tokens"], tokens, "{}", answer.asked);
        assert_eq!(answer.header("x-input-type"), None, "{}", answer.asked);
    }
    let other = server.post(DENSE, &with("input_type", "clustering".into()));
    other.refused("invalid_value", "input_type").says("no prompt for this use");
}

#[test]
fn lengths_and_forms_in_the_words_of_other_services_are_obeyed() {
    let server = Server::ready();
    let cut = server.post(DENSE, &with("dimensions", CUT.into())).ok();
    for field in ["output_dimension", "truncate_dim"] {
        assert_eq!(server.post(DENSE, &with(field, CUT.into())).ok(), cut, "{field}");
    }
    let base64 = server.post(DENSE, &with("encoding_format", "base64".into())).ok();
    let plain = server.post(DENSE, &json!({"input": "text"})).ok();
    let as_base64 = json!({"embedding_type": ["base64"], "embedding_types": [["base64"]]});
    let as_usual = json!({
        "embedding_type": ["float"], "embedding_types": [["float"]], "output_dtype": ["float"],
        "normalized": [true], "truncation": [true],
    });
    for (fields, expected) in [(as_base64, &base64), (as_usual, &plain)] {
        for (field, value) in each(&fields) {
            assert_eq!(server.post(DENSE, &with(field, value.clone())).ok(), *expected, "{field}");
        }
    }
    let int8 = server.post(DENSE, &with("output_type", "int8".into())).ok();
    assert_ne!(int8, plain);
    for field in ["output_dtype", "embedding_type", "embedding_types", "embed_dtype"] {
        assert_eq!(server.post(DENSE, &with(field, "int8".into())).ok(), int8, "{field}");
    }
    assert_eq!(server.post(DENSE, &with("embed_dtype", "float32".into())).ok(), plain);
    // OpenAI's clients ask for base64 by themselves; the numbers are floats nevertheless.
    let both = json!({"input": "text", "encoding_format": "base64", "output_dtype": "float"});
    assert_eq!(server.post(DENSE, &both).ok(), base64);
    let whole = json!({"input": LONG_TEXT, "truncation": false});
    server.post(DENSE, &whole).refused("context_length_exceeded", "input");
}

#[test]
fn the_table_is_for_questions_on_the_sparse_route_of_models_that_have_scores() {
    let server = Server::ready();
    let table =
        |input_type: Value| json!({"input": "two", "lexical": "table", "input_type": input_type});
    for (path, body, cure) in [
        (SPARSE, table(json!("query")), "this model's tokenizer has no scores"),
        (SPARSE, table(json!("passage")), "send input_type \"query\""),
        (SPARSE, table(Value::Null), "send input_type \"query\""),
        (BOTH, table(json!("query")), "use POST /v1/sparse-embeddings"),
    ] {
        server.post(path, &body).refused("invalid_value", "lexical").says(cure);
    }
    let head = with("lexical", "head".into());
    assert_eq!(
        server.post(SPARSE, &head).ok(),
        server.post(SPARSE, &json!({"input": "text"})).ok()
    );
    server.post(DENSE, &table(Value::Null)).ok();
}

/// Two fields of one meaning: the later one is refused, and the message names the other.
const DIFFER: &str = r#"
{"input":"a","input_type":"query","task":"retrieval.passage"} | task | input_type
{"input":"a","task_type":"RETRIEVAL_QUERY","prompt_name":"passage"} | prompt_name | task_type
{"input":"a","task":"retrieval.query","task_type":"CLUSTERING"} | task_type | task
{"input":"a","dimensions":4,"output_dimension":8} | output_dimension | dimensions
{"input":"a","output_dimension":4,"truncate_dim":8} | truncate_dim | output_dimension
{"input":"a","truncate":true,"truncation":false} | truncation | truncate
{"input":"a","truncate":"NONE","truncation":true} | truncation | truncate
{"input":"a","encoding_format":"float","embedding_type":"base64"} | embedding_type | encoding_format
{"input":"a","output_dtype":"base64","embedding_type":"float"} | embedding_type | output_dtype
{"input":"a","output_type":"int8","embed_dtype":"float32"} | embed_dtype | output_type
{"input":"a","model":"org/stub-model-query","task":"retrieval.passage"} | task | leave task out
"#;

#[test]
fn fields_that_mean_the_same_may_not_differ() {
    let server = Server::ready();
    for [body, field, words] in rows(DIFFER) {
        server.post_bytes(DENSE, body).refused("invalid_value", field).says(words);
    }
    let same = json!({
        "input": "text", "input_type": "query", "task": "retrieval.query",
        "task_type": "RETRIEVAL_QUERY", "prompt_name": "query",
    });
    let expected = server.post(DENSE, &with("input_type", "query".into())).ok();
    assert_eq!(server.post(DENSE, &same).ok(), expected);
}

const TIMEOUT: &str = "x-request-timeout-ms";

#[test]
fn a_timeout_above_the_servers_is_cut_and_the_answer_tells_it() {
    let server = Server::ready();
    let most = MaxRequestTimeoutMs::DEFAULT.get();
    for (path, body) in [(DENSE, TEXT), ("/v1/tokenize", TEXT), ("/embed", r#"{"inputs":"text"}"#)]
    {
        let ask = |value: &str| server.post_with(path, &[(TIMEOUT, value)], body);
        let (most, above) = (most.to_string(), (most + 1).to_string());
        for (value, told) in [
            (&*above, Some(&*most)),
            ("3600000", Some(&*most)),
            ("99999999999999999999", Some(&*most)),
            ("5000", None),
            ("05000", None),
            (&*most, None),
        ] {
            let answer = ask(value);
            answer.ok();
            assert_eq!(answer.header(TIMEOUT), told, "{path} {value}");
        }
        let refused = server.post_with(path, &[(TIMEOUT, "3600000")], "{}");
        assert_eq!(refused.status, 400, "{path}");
        assert_eq!(refused.header(TIMEOUT), Some(&*most), "a refusal of {path}");
    }
}

#[test]
fn the_headers_of_time_and_priority_are_whole_numbers_and_one_of_two_words() {
    let server = Server::ready();
    let ask = |header: &str, value: &str| {
        server.post_with(DENSE, &[(header, value)], r#"{"input":["a","b"]}"#)
    };
    for value in ["0", "00", "-1", "+5", "1.5", "1e3", "0x10", "5 ms", "soon", ""] {
        ask(TIMEOUT, value).refused("invalid_value", TIMEOUT);
    }
    for value in ["", "high", "Bulk", "interactive,bulk", "1"] {
        ask("x-priority", value).refused("invalid_value", "x-priority").says("interactive or bulk");
    }
    let answers = ["interactive", "bulk"].map(|value| ask("x-priority", value).ok());
    assert_eq!(answers[0], answers[1]);
}
