//! POST /v1/sparse-embeddings and /v1/embeddings:both: lexical weights and their formats.

use crate::support::*;

#[test]
fn both_is_the_pair_of_the_single_answers() {
    let server = Server::ready();
    let input = ["one", "two words"];
    let dense = server.post(DENSE, &json!({"input": input})).ok();
    let sparse = server.post(SPARSE, &json!({"input": input})).ok();
    let (escaped, lowercase) = ("/v1/embeddings%3Aboth", "/v1/embeddings%3aboth");
    for path in [BOTH, escaped, lowercase, "/v1/embeddings/both"] {
        let both = server.post(path, &json!({"input": input})).ok();
        for index in 0..2 {
            let item = &both["data"][index];
            assert_eq!(item["object"], "paired_embedding");
            assert_eq!(item["index"], index);
            assert_eq!(item["embedding"], dense["data"][index]["embedding"]);
            assert_eq!(item["sparse_values"], sparse["data"][index]["sparse_values"]);
        }
        assert_eq!(both["usage"], dense["usage"]);
    }
}

#[test]
fn both_takes_every_option() {
    let server = Server::ready();
    let body = json!({
        "input": "one two", "encoding_format": "base64", "dimensions": CUT,
        "sparse_format": "dict", "sparse_top_k": 1,
    });
    let body = server.post(BOTH, &body).ok();
    assert_eq!(decode(&body["data"][0]["embedding"]).len(), CUT);
    assert_eq!(body["data"][0]["sparse_values"].as_object().map(|pairs| pairs.len()), Some(1));
}

#[test]
fn offsets_say_where_the_text_has_each_id_with_its_weight_there() {
    let server = Server::ready();
    // A prompt has no place in the text.
    let prompted = json!({"input": ["one", ""], "offsets": true, "input_type": "query"});
    let data = server.post(SPARSE, &prompted).ok()["data"].take();
    assert_eq!(data[0]["occurrences"][0]["start"], 0);
    assert_eq!(data[0]["occurrences"].as_array().map(Vec::len), Some(1));
    assert_eq!(data[1]["occurrences"], json!([]));
    server.set_weights(&[9.0, 0.125, 0.25, 0.5, 9.0]);
    for path in [SPARSE, BOTH] {
        let ask = |more: &Value| {
            let body = json!({"input": "two  one 😀", "offsets": true});
            server.post(path, &joined(body, more)).ok()["data"][0].take()
        };
        let place = |id: u32, start: u32, weight: f32| {
            let end = start + 3;
            json!({"id": id, "start": start, "end": end, "weight": weight})
        };
        // The unknown word has no weight, so that it is in neither list.
        let (two, one) = (place(101, 0, 0.125), place(100, 5, 0.25));
        assert_eq!(ask(&json!({}))["occurrences"], json!([two, one]), "{path}");
        assert_eq!(ask(&json!({"sparse_top_k": 1}))["occurrences"], json!([one]), "{path}");
        assert!(ask(&json!({"offsets": false})).get("occurrences").is_none(), "{path}");
    }
    let repeated = json!({"input": "two one two", "offsets": true});
    // A place may weigh nothing where another place of the same id has a weight.
    for (weight, told) in [(0.125, 0.125), (-0.5, 0.0)] {
        server.set_weights(&[9.0, weight, 0.25, 0.5, 9.0]);
        let item = server.post(SPARSE, &repeated).ok()["data"][0].take();
        assert_eq!(pairs(&item), [(100, 0.25), (101, 0.5)]);
        let weights = item["occurrences"].as_array().expect("a list").iter();
        let weights: Vec<_> = weights.map(|place| (&place["id"], &place["weight"])).collect();
        let expected = [(101, told), (100, 0.25), (101, 0.5)].map(|(id, w)| (json!(id), json!(w)));
        assert_eq!(weights, expected.each_ref().map(|(id, weight)| (id, weight)));
    }
}

#[test]
fn offsets_of_token_ids_are_refused() {
    let server = Server::ready();
    let refused = r#"
        {"input":[[100,101]],"offsets":true} | invalid_value offsets | send texts
        {"input":"one","offsets":"yes"} | invalid_value offsets | true or false
    "#;
    server.refuses(&[SPARSE, BOTH], refused);
    // As all that is said of lexical weights, it does not count where there are none.
    let body = json!({"input": [[100, 101]], "offsets": true});
    assert!(server.post(DENSE, &body).ok()["data"][0].get("occurrences").is_none());
}
