//! `chunking` and `late_chunking`: chunks of texts, alone and late.

use duovec::engine::fake::expected_dense;

use crate::support::*;

/// Nine tokens, of ids from 100 to 105.
const TEXT: &str = "one two three words here text one two three";
const IDS: [u32; 9] = [100, 101, 102, 103, 104, 105, 100, 101, 102];

fn ask(server: &Server, route: &str, input: &Value, chunking: &Value) -> Vec<Value> {
    let body = json!({"input": input, "chunking": chunking});
    server.post(route, &body).ok()["data"].as_array().expect("a list").clone()
}

fn chunk(input: usize, start: usize, end: usize, tokens: usize) -> Value {
    json!({"input": input, "start": start, "end": end, "tokens": tokens})
}

#[test]
fn late_chunks_are_pooled_out_of_the_run_of_their_text() {
    let server = Server::ready();
    let by = json!({"by": "tokens", "size": 4, "overlap": 1, "late": true});
    let data = ask(&server, BOTH, &json!([TEXT]), &by);
    let places = [(0, 19, 0..4), (14, 33, 3..7), (30, 43, 6..9)];
    assert_eq!(data.len(), places.len());
    for (index, (item, (start, end, tokens))) in data.iter().zip(places).enumerate() {
        assert_eq!(item["index"], index);
        assert_eq!(item["object"], "paired_embedding");
        assert_eq!(item["chunk"], chunk(0, start, end, tokens.len()));
        let ids = &IDS[tokens];
        assert_eq!(floats(&item["embedding"]), expected_dense(ids, HIDDEN));
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        assert_eq!(item["sparse_values"]["indices"], json!(sorted), "only its own tokens");
        assert!(item.get("truncated_from").is_none());
    }
    let body = json!({"input": TEXT, "chunking": by});
    let usage = &server.post(DENSE, &body).ok()["usage"]["prompt_tokens"];
    assert_eq!(*usage, 22, "a row gives two vectors, so that the text runs twice for three");
    let sparse = server.post(SPARSE, &body).ok();
    assert_eq!(sparse["usage"]["prompt_tokens"], 11, "weights come from one run");
}

#[test]
fn chunks_alone_are_those_texts_sent_alone() {
    let server = Server::ready();
    let by = json!({"by": "tokens", "size": 4, "late": false});
    let data = ask(&server, BOTH, &json!(["hello", TEXT]), &by);
    let texts = ["hello", "one two three words", "here text one two", "three"];
    let alone = server.post(BOTH, &json!({ "input": texts })).ok();
    let chunks = [chunk(0, 0, 5, 1), chunk(1, 0, 19, 4), chunk(1, 20, 37, 4), chunk(1, 38, 43, 1)];
    assert_eq!(data.len(), texts.len());
    for (index, (item, place)) in data.iter().zip(chunks).enumerate() {
        assert_eq!(item["chunk"], place);
        for field in ["embedding", "sparse_values", "index"] {
            assert_eq!(item[field], alone["data"][index][field]);
        }
    }
}

#[test]
fn sentences_end_in_all_languages_and_spans_count_characters() {
    let server = Server::ready();
    let text = "One two. Three é words? 一二。 三四。";
    let by = json!({"by": "sentences", "size": 2});
    let places: Vec<Value> = ask(&server, SPARSE, &json!(text), &by)
        .iter()
        .map(|item| json!([item["chunk"]["start"], item["chunk"]["end"]]))
        .collect();
    assert_eq!(places, [json!([0, 8]), json!([9, 16]), json!([17, 27]), json!([28, 31])]);
    for late in [false, true] {
        let spans = json!({"by": "spans", "spans": [[9, 23], [0, 8], [10, 12]], "late": late});
        let data = ask(&server, DENSE, &json!(text), &spans);
        let starts: Vec<&Value> = data.iter().map(|item| &item["chunk"]["start"]).collect();
        assert_eq!(starts, [9, 0, 10], "in the order of the request");
        let lists = json!({"by": "spans", "spans": [[[0, 3]], [[0, 3], [4, 7]]], "late": late});
        let data = ask(&server, DENSE, &json!(["one two", "one two"]), &lists);
        let inputs: Vec<&Value> = data.iter().map(|item| &item["chunk"]["input"]).collect();
        assert_eq!(inputs, [0, 1, 1]);
    }
}

#[test]
fn a_text_beyond_the_model_runs_in_windows_and_each_chunk_says_its_own() {
    let server = Server::ready();
    let words: Vec<&str> = TEXT.split(' ').cycle().take(40).collect();
    let by = json!({"by": "tokens", "size": 3, "late": true});
    let data = ask(&server, BOTH, &json!(words.join(" ")), &by);
    assert_eq!(data.len(), 14);
    let ids: Vec<u32> = IDS.into_iter().cycle().take(40).collect();
    let mut windows = Vec::new();
    for (number, item) in data.iter().enumerate() {
        let own = &ids[3 * number..ids.len().min(3 * number + 3)];
        assert_eq!(floats(&item["embedding"]), expected_dense(own, HIDDEN));
        windows.push(item["chunk"]["window"].as_u64().expect("there are several"));
    }
    assert!(windows.is_sorted() && windows[0] == 0 && windows[13] > 1, "{windows:?}");
    let by = json!({"by": "sentences", "size": 30, "late": true});
    let long = ask(&server, DENSE, &json!(words.join(" ")), &by);
    assert_eq!(long[0]["truncated_from"], 30);
    assert_eq!(long[0]["chunk"]["tokens"], MAX_TOKENS - 2);
    let refused =
        server.post(DENSE, &json!({"input": words.join(" "), "chunking": by, "truncate": false}));
    refused.refused("context_length_exceeded", "chunking");
}

#[test]
fn weights_of_a_chunk_say_their_places_in_the_whole_text() {
    let server = Server::ready();
    for late in [false, true] {
        let chunking = json!({"by": "tokens", "size": 4, "late": late});
        let body = json!({"input": TEXT, "chunking": chunking, "offsets": true});
        let answer = server.post(SPARSE, &body).ok();
        for item in answer["data"].as_array().expect("a list") {
            let (start, end) = (&item["chunk"]["start"], &item["chunk"]["end"]);
            let places = item["occurrences"].as_array().expect("it was asked for");
            assert_eq!(places.len(), item["chunk"]["tokens"].as_u64().expect("a count") as usize);
            assert_eq!(places[0]["start"], *start);
            assert_eq!(places[places.len() - 1]["end"], *end);
        }
    }
}

#[test]
fn a_prompt_belongs_to_no_late_chunk() {
    let server = Server::ready();
    let spans = json!({"by": "spans", "spans": [[0, 7]], "late": true});
    let plain = ask(&server, BOTH, &json!("one two"), &spans);
    let body = json!({"input": "one two", "chunking": spans, "input_type": "query"});
    let prompted = server.post(BOTH, &body).ok();
    assert_eq!(prompted["data"][0], plain[0]);
    assert_eq!(floats(&plain[0]["embedding"]), expected_dense(&[100, 101], HIDDEN));
}

#[test]
fn jinas_late_chunking_gives_each_item_a_vector_of_the_whole() {
    let server = Server::ready();
    let body = json!({"input": ["one two", "three words here ", "text"], "late_chunking": true});
    let answer = server.post(DENSE, &body).ok();
    let parts = [&IDS[..2], &IDS[2..5], &IDS[5..6]];
    for (index, (item, ids)) in
        answer["data"].as_array().expect("a list").iter().zip(parts).enumerate()
    {
        assert_eq!(item["index"], index);
        assert_eq!(floats(&item["embedding"]), expected_dense(ids, HIDDEN));
        assert!(item.get("chunk").is_none());
    }
    let plain = json!({"input": ["one two", "three"], "late_chunking": false});
    let absent = json!({"input": ["one two", "three"]});
    assert_eq!(server.post(DENSE, &plain).ok(), server.post(DENSE, &absent).ok());
}

#[test]
fn late_chunking_makes_no_text_that_is_larger_than_an_item() {
    let server = Server::set(|set| set.http.max_item_bytes = number(64));
    let ask = |items: usize, late: bool| {
        let texts = vec!["one two three 16"; items];
        server.post(DENSE, &json!({"input": texts, "late_chunking": late}))
    };
    assert_eq!(ask(4, true).ok()["data"].as_array().map(Vec::len), Some(4));
    ask(5, false).ok();
    let said = ask(5, true).refused("item_too_large", "late_chunking");
    said.says("may have 64 bytes…send fewer or shorter items");
}

#[test]
fn kept_rows_of_chunks_are_those_of_the_same_chunks_only() {
    let server = Server::set(|set| set.queue.cache_bytes = number(1 << 20));
    let ask = |chunking: &Value| {
        let answer = server.post(BOTH, &json!({"input": "one two three", "chunking": chunking}));
        let timing = answer.header("server-timing").expect("it is told").to_owned();
        (answer.ok()["data"].clone(), timing.contains("cache;desc=hit"))
    };
    let by = |size: usize, late: bool| json!({"by": "tokens", "size": size, "late": late});
    let (whole, _) = ask(&Value::Null);
    assert_eq!(ask(&Value::Null), (whole, true));
    let (two, is_hit) = ask(&by(2, true));
    assert!(!is_hit);
    assert_eq!(ask(&by(2, true)), (two.clone(), true));
    let (others, is_hit) = ask(&by(3, true));
    assert!(!is_hit && others != two);
    // Alone, the chunk of all tokens is the text, whose rows are kept.
    assert!(ask(&by(3, false)).1);
}

/// A value of `chunking` and what the message says, begin first. What is no object is a list of
/// spans. KEY is longer than any name of a field.
const REFUSED: &str = r#"
{"by":"tokens"} | chunking.size is missing
{"by":"tokens","size":0} | chunking.size must be
{"by":"tokens","size":4,"overlap":4} | chunking.overlap is 4
{"by":"tokens","size":4,"overlap":-1} | chunking.overlap must be
{"by":"tokens","size":4,"late":1} | chunking.late must be
{"by":"tokens","size":4,"spans":[[0,1]]} | chunking.spans does not go
{"by":"sentences","size":4,"overlap":0} | chunking.overlap does not go
{"by":"words","size":4} | chunking.by must be
{"size":4} | chunking.by is missing
{"by":"tokens","size":4,"step":2} | chunking…and nothing else
{"by":"tokens","size":4,"lat":true} | chunking has no field lat; chunking must
{"by":"tokens","size":4,"by":"tokens"} | chunking.by comes twice; send it once
{"size":4,"KEY":1} | chunking must be an object
{"by":"spans"} | chunking.spans is missing
{"by":"spans","spans":[[[3,4]],[[0,1]]],"late":true} | …span 0 of item 0, [3, 4], has no token
[[0,1]] | …input has 2 items
[[[0,1]]] | chunking.spans has 1 lists
[[[0,1]],[]] | …no span for item 1
[[],[]] | …no span for item 0
[[[0,1]],[[0,1,2]]] | chunking.spans
[[[0,1]],[[5,8]]] | …span 0 of item 1 is [5, 8]
[[[0,1],[3,3]],[[0,1]]] | …span 1 of item 0
[[[0,1],[3,2]],[[0,1]]] | …span 1 of item 0
[[-1,2]] | chunking.spans[0][0] is below zero
[[0,2],[0,18446744073709551616]] | chunking.spans[1][1] has a fraction
[[0.0,2]] | chunking.spans[0][0] has a fraction
[[0,2],[0]] | chunking.spans[1] is no span of two numbers
[[[0,2]],[[0,1],[1]]] | chunking.spans[1][1] is no span of two numbers
[[0,2],"a"] | chunking.spans[1] is neither a number nor a list
[[0,2],[[0,2]]] | chunking.spans mixes numbers, spans and lists
[0,2] | chunking.spans must be a list of spans
"a" | chunking.spans must be a list of spans
"#;

#[test]
fn chunks_that_cannot_be_are_refused_with_item_span_and_key() {
    let server = Server::ready();
    for [value, words] in rows(REFUSED) {
        let chunking = match value.starts_with('{') {
            true => value.replace("KEY", &"a".repeat(65)),
            false => format!(r#"{{"by":"spans","spans":{value}}}"#),
        };
        let body = format!(r#"{{"input":["{TEXT}","one two"],"chunking":{chunking}}}"#);
        let code = if words.contains("twice") { "duplicate_field" } else { "invalid_value" };
        let said = server.post_bytes(DENSE, body).refused(code, "chunking");
        let (begin, more) = words.split_once('…').unwrap_or((words, ""));
        assert!(said.0.starts_with(begin), "{value}: {}", said.0);
        said.says(more);
    }
}

const UNFIT: &str = r#"
{"input":"a","chunking":[1]} | invalid_value chunking | chunking must be
{"input":[5],"chunking":{"by":"tokens","size":4}} | invalid_value chunking | send texts
{"input":[[0,5]],"late_chunking":true} | invalid_value late_chunking | leave late_chunking out
{"input":["","a"],"late_chunking":true} | invalid_value late_chunking | item 0…empty; leave it out
{"input":["a"," "],"late_chunking":true} | invalid_input input | item 1 
{"input":"a","chunking":{"by":"tokens"},"late_chunking":true} | invalid_value late_chunking | both
{"input":"a","offsets":true,"late_chunking":true} | invalid_value late_chunking | for offsets
"#;

#[test]
fn fields_that_do_not_go_with_chunks_are_refused() {
    Server::ready().refuses(&[SPARSE], UNFIT);
}

#[test]
fn a_request_has_no_more_chunks_than_it_may_have_items() {
    let server = Server::set(|set| set.http.max_items = number(4));
    let by = |size: usize| json!({"by": "tokens", "size": size, "late": true});
    assert_eq!(ask(&server, DENSE, &json!([TEXT, "one"]), &by(3)).len(), 4);
    let spans = json!({"by": "spans", "spans": [[0, 1], [0, 1], [0, 1], [0, 1], [0, 1]]});
    for (input, chunking, word) in [
        (json!([TEXT, "one two three words"]), by(3), "with item 1"),
        (json!([TEXT, "one"]), by(2), "with item 0"),
        (json!(["one two three", TEXT]), by(1), "with item 1"),
        (json!([TEXT]), spans, "chunking.spans has more than 4 spans"),
    ] {
        let body = json!({"input": input, "chunking": chunking});
        server.post(DENSE, &body).refused("too_many_items", "chunking").says(word);
    }
}
