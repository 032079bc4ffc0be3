//! Bodies that are wrong: each is a 400 in JSON that names the place and what was expected.

use crate::support::{BOTH, DENSE, SPARSE, Server};

/// Body, code, param, and a part of the message.
type Case<'a> = (&'a [u8], &'a str, Option<&'a str>, &'a str);

const JSON: &str = "invalid_json";
const INPUT: &str = "invalid_input";

#[track_caller]
fn refuse(server: &Server, cases: &[Case<'_>]) {
    for (body, code, param, part) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        for path in [DENSE, SPARSE, BOTH] {
            let error = server.post_bytes(path, body.to_vec()).error();
            assert_eq!(error.status, 400, "{shown}: {}", error.message);
            assert_eq!(error.kind, "invalid_request_error", "{shown}");
            assert_eq!((error.code.as_str(), error.param.as_deref()), (*code, *param), "{shown}");
            assert!(error.message.contains(part), "{shown}: {}", error.message);
            assert!(error.message.len() < 300, "{shown}: {}", error.message);
        }
    }
    // The server is as well as before.
    server.post_bytes(DENSE, r#"{"input":"text"}"#).ok();
}

#[test]
fn bodies_that_are_not_json_are_refused() {
    let server = Server::ready();
    let open = "[".repeat(200_000);
    let objects = "{\"a\":".repeat(200_000);
    let nested = format!("{{\"extra\":{open}");
    refuse(
        &server,
        &[
            (b"", JSON, None, "empty"),
            (b" \r\n\t", JSON, None, "empty"),
            (b"\xef\xbb\xbf{\"input\":\"a\"}", JSON, None, "byte order mark"),
            (b"\xff\xfe{\x00}\x00", JSON, None, "UTF-8"),
            (b"{\"input\":\"\xff\"}", JSON, None, "byte 10"),
            (b"{\"input\":\"\xc3\"}", JSON, None, "UTF-8"),
            (b"{\"input\":\"\xed\xa0\x80\"}", JSON, None, "UTF-8"),
            (b"{\"extra\":\"\xff\",\"input\":\"a\"}", JSON, None, "UTF-8"),
            (b"{", JSON, None, "line 1"),
            (b"{\"input\":\"a\"", JSON, None, "line 1"),
            (b"{\"input\":\"a", JSON, None, "line 1"),
            (b"{\"input\":[\"a\"", JSON, None, "line 1"),
            (b"{\"input\":\"a\",}", JSON, None, "line 1"),
            (b"{\"input\":[\"a\",]}", JSON, None, "line 1"),
            (b"{\"input\" \"a\"}", JSON, None, "line 1"),
            (b"{input:\"a\"}", JSON, None, "line 1"),
            (b"{'input':'a'}", JSON, None, "line 1"),
            (b"{\"input\":\"a\"} x", JSON, None, "trailing"),
            (b"{\"input\":\"a\"}{}", JSON, None, "trailing"),
            (b"{\"input\":\"a\"}\x00", JSON, None, "trailing"),
            (b"{\"input\":\"a\nb\"}", JSON, None, "control character"),
            (b"{\"input\":\"\\x\"}", JSON, None, "escape"),
            (b"{\"input\":\"\\ud800\"}", JSON, None, "half of a character"),
            (b"{\"input\":\"\\ud800\\u0041\"}", JSON, None, "half of a character"),
            (b"{\"input\":\"\\udc00\"}", JSON, None, "line 1 column 16 is half"),
            (b"{\"input\":\"\\u12\"}", JSON, None, "line 1"),
            (b"{\"input\":[NaN]}", JSON, None, "line 1"),
            (b"{\"input\":[Infinity]}", JSON, None, "line 1"),
            (b"{\"input\":[-Infinity]}", JSON, None, "line 1"),
            (b"{\"sparse_min_weight\":NaN}", JSON, None, "line 1"),
            (b"{\"sparse_min_weight\":1e999}", JSON, None, "number out of range"),
            (b"{\"input\":[01]}", JSON, None, "line 1"),
            (b"{\"input\":[+1]}", JSON, None, "line 1"),
            (b"{\"input\":[.5]}", JSON, None, "line 1"),
            (b"{\"input\":[0x10]}", JSON, None, "line 1"),
            (b"{\"input\":tru}", JSON, None, "line 1"),
            (b"/* c */{\"input\":\"a\"}", JSON, None, "line 1"),
            (b"\x00\x01\x02", JSON, None, "line 1"),
            (b"\x1f\x8b\x08\x00", JSON, None, "UTF-8"),
            (b"input=a", JSON, None, "line 1"),
            (nested.as_bytes(), JSON, None, "line 1"),
            (objects.as_bytes(), JSON, None, "line 1"),
        ],
    );
}

#[test]
fn bodies_that_are_not_one_object_are_refused() {
    let server = Server::ready();
    let open = "[".repeat(200_000);
    refuse(
        &server,
        &[
            (b"[]", JSON, None, "one JSON object"),
            (b"[{\"input\":\"a\"}]", JSON, None, "one JSON object"),
            (b"\"a\"", JSON, None, "one JSON object"),
            (b"null", JSON, None, "one JSON object"),
            (b"true", JSON, None, "one JSON object"),
            (b"12", JSON, None, "one JSON object"),
            (open.as_bytes(), JSON, None, "one JSON object"),
        ],
    );
}

#[test]
fn inputs_of_a_wrong_shape_are_refused_with_their_place() {
    let server = Server::ready();
    let input = Some("input");
    let deep = format!("{{\"input\":{}", "[".repeat(200_000));
    refuse(
        &server,
        &[
            (b"{}", INPUT, input, "missing"),
            (b"{\"inputs\":\"a\"}", INPUT, input, "missing"),
            (b"{\"input\":null}", INPUT, input, "missing"),
            (b"{\"input\":[]}", INPUT, input, "empty list"),
            (b"{\"input\":{}}", INPUT, input, "input is an object"),
            (b"{\"input\":{\"text\":\"a\"}}", INPUT, input, "input is an object"),
            (b"{\"input\":1}", INPUT, input, "input is a number"),
            (b"{\"input\":1.5}", INPUT, input, "input is a number"),
            (b"{\"input\":true}", INPUT, input, "input is a boolean"),
            (b"{\"input\":[null]}", INPUT, input, "input[0] is null"),
            (b"{\"input\":[true]}", INPUT, input, "input[0] is a boolean"),
            (b"{\"input\":[{}]}", INPUT, input, "input[0] is an object"),
            (b"{\"input\":[\"a\",null]}", INPUT, input, "input[1] is null"),
            (
                b"{\"input\":[\"a\",1]}",
                INPUT,
                input,
                "input[1] is a token id and the first item is a text",
            ),
            (
                b"{\"input\":[1,\"a\"]}",
                INPUT,
                input,
                "input[1] is a text and the first item is a token id",
            ),
            (b"{\"input\":[1,[2]]}", INPUT, input, "input[1] is a list"),
            (b"{\"input\":[[1],2]}", INPUT, input, "input[1] is a token id"),
            (b"{\"input\":[[1],\"a\"]}", INPUT, input, "input[1] is a text"),
            (b"{\"input\":[\"a\",[1]]}", INPUT, input, "input[1] is a list"),
            (b"{\"input\":[[1],[\"a\"]]}", INPUT, input, "input[1][0] is a text"),
            (b"{\"input\":[[1,null]]}", INPUT, input, "input[0][1] is null"),
            (b"{\"input\":[[[1]]]}", INPUT, input, "input[0][0] is a list"),
            (b"{\"input\":[[\"a\"]]}", INPUT, input, "input[0][0] is a text"),
            (b"{\"input\":[-1]}", INPUT, input, "input[0] is a number below zero"),
            (b"{\"input\":[[5,-1]]}", INPUT, input, "input[0][1] is a number below zero"),
            (b"{\"input\":[1.0]}", INPUT, input, "fraction"),
            (b"{\"input\":[5,1e2]}", INPUT, input, "input[1] is a number with a fraction"),
            (b"{\"input\":[99999999999999999999]}", INPUT, input, "beyond 64 bits"),
            (b"{\"input\":[4294967296]}", "token_id_out_of_range", input, "input[0] is larger"),
            (b"{\"input\":[[1,18446744073709551615]]}", "token_id_out_of_range", input, "[0][1]"),
            (deep.as_bytes(), INPUT, input, "input[0][0] is a list"),
        ],
    );
}

#[test]
fn fields_that_come_twice_are_refused() {
    let server = Server::ready();
    let twice = "duplicate_field";
    refuse(
        &server,
        &[
            (b"{\"input\":\"a\",\"input\":\"b\"}", twice, Some("input"), "twice"),
            (b"{\"input\":null,\"input\":\"b\"}", twice, Some("input"), "twice"),
            (b"{\"input\":\"a\",\"\\u0069nput\":\"b\"}", twice, Some("input"), "twice"),
            (b"{\"model\":null,\"input\":\"a\",\"model\":null}", twice, Some("model"), "twice"),
            (b"{\"user\":1,\"user\":2,\"input\":\"a\"}", twice, Some("user"), "twice"),
            (b"{\"truncate\":true,\"truncate\":true}", twice, Some("truncate"), "twice"),
        ],
    );
}

#[test]
fn the_first_thing_that_is_wrong_is_the_answer() {
    let server = Server::ready();
    refuse(
        &server,
        &[
            (b"{\"truncate\":1,\"input\":1}", "invalid_value", Some("truncate"), "true or false"),
            (b"{\"input\":1,\"truncate\":1}", INPUT, Some("input"), "number"),
            (b"{\"input\":1, oops", INPUT, Some("input"), "number"),
            (b"{\"model\":\"other\"}", INPUT, Some("input"), "missing"),
        ],
    );
}

#[test]
fn messages_do_not_repeat_what_was_sent() {
    let server = Server::ready();
    let secret = "my secret text ".repeat(100);
    for body in [
        format!("{{\"input\":[\"{secret}\",1]}}"),
        format!("{{\"input\":\"a\",\"model\":\"{secret}\"}}"),
        format!("{{\"input\":\"a\",\"encoding_format\":\"{secret}\"}}"),
        format!("{{\"input\":\"a\",\"dimensions\":\"{secret}\"}}"),
        format!("{{\"input\":\"{secret}"),
        format!("\"{secret}\""),
    ] {
        let error = server.post_bytes(DENSE, body).error();
        assert!(!error.message.contains("secret"), "{}", error.message);
    }
}
