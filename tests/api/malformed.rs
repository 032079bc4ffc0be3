//! Bodies that are wrong: each is a 400 in JSON that names the place and what was expected.

use crate::support::{BOTH, DENSE, SPARSE, Server};

/// Body, code, param, and a part of the message.
type Case<'a> = (&'a [u8], &'a str, &'a str, &'a str);

const JSON: &str = "invalid_json";
const INPUT: &str = "invalid_input";

#[track_caller]
fn refuse(server: &Server, cases: &[Case<'_>]) {
    for (body, code, param, part) in cases {
        for path in [DENSE, SPARSE, BOTH] {
            let said = server.post_bytes(path, body.to_vec()).refused(code, param);
            assert!(said.says(part).0.len() < 300, "{}", said.0);
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
            (b"", JSON, "", "empty"),
            (b" \r\n\t", JSON, "", "empty"),
            (b"\xef\xbb\xbf{\"input\":\"a\"}", JSON, "", "byte order mark"),
            (b"\xff\xfe{\x00}\x00", JSON, "", "UTF-8"),
            (b"{\"input\":\"\xff\"}", JSON, "", "byte 10"),
            (b"{\"input\":\"\xc3\"}", JSON, "", "UTF-8"),
            (b"{\"input\":\"\xed\xa0\x80\"}", JSON, "", "UTF-8"),
            (b"{\"extra\":\"\xff\",\"input\":\"a\"}", JSON, "", "UTF-8"),
            (b"{", JSON, "", "line 1"),
            (b"{\"input\":\"a\"", JSON, "", "line 1"),
            (b"{\"input\":\"a", JSON, "", "line 1"),
            (b"{\"input\":[\"a\"", JSON, "", "line 1"),
            (b"{\"input\":\"a\",}", JSON, "", "line 1"),
            (b"{\"input\":[\"a\",]}", JSON, "", "line 1"),
            (b"{\"input\" \"a\"}", JSON, "", "line 1"),
            (b"{input:\"a\"}", JSON, "", "line 1"),
            (b"{'input':'a'}", JSON, "", "line 1"),
            (b"{\"input\":\"a\"} x", JSON, "", "trailing"),
            (b"{\"input\":\"a\"}{}", JSON, "", "trailing"),
            (b"{\"input\":\"a\"}\x00", JSON, "", "trailing"),
            (b"{\"input\":\"a\nb\"}", JSON, "", "control character"),
            (b"{\"input\":\"\\x\"}", JSON, "", "escape"),
            (b"{\"input\":\"\\ud800\"}", JSON, "", "half of a character"),
            (b"{\"input\":\"\\ud800\\u0041\"}", JSON, "", "half of a character"),
            (b"{\"input\":\"\\udc00\"}", JSON, "", "line 1 column 16 is half"),
            (b"{\"input\":\"\\u12\"}", JSON, "", "line 1"),
            (b"{\"input\":[NaN]}", JSON, "", "line 1"),
            (b"{\"input\":[Infinity]}", JSON, "", "line 1"),
            (b"{\"input\":[-Infinity]}", JSON, "", "line 1"),
            (b"{\"sparse_min_weight\":NaN}", JSON, "", "line 1"),
            (b"{\"sparse_min_weight\":1e999}", JSON, "", "number out of range"),
            (b"{\"input\":[01]}", JSON, "", "line 1"),
            (b"{\"input\":[+1]}", JSON, "", "line 1"),
            (b"{\"input\":[.5]}", JSON, "", "line 1"),
            (b"{\"input\":[0x10]}", JSON, "", "line 1"),
            (b"{\"input\":tru}", JSON, "", "line 1"),
            (b"/* c */{\"input\":\"a\"}", JSON, "", "line 1"),
            (b"\x00\x01\x02", JSON, "", "line 1"),
            (b"\x1f\x8b\x08\x00", JSON, "", "UTF-8"),
            (b"input=a", JSON, "", "line 1"),
            (nested.as_bytes(), JSON, "", "line 1"),
            (objects.as_bytes(), JSON, "", "line 1"),
            (b"[]", JSON, "", "one JSON object"),
            (b"[{\"input\":\"a\"}]", JSON, "", "one JSON object"),
            (b"\"a\"", JSON, "", "one JSON object"),
            (b"null", JSON, "", "one JSON object"),
            (b"true", JSON, "", "one JSON object"),
            (b"12", JSON, "", "one JSON object"),
            (open.as_bytes(), JSON, "", "one JSON object"),
        ],
    );
}

#[test]
fn inputs_of_a_wrong_shape_are_refused_with_their_place() {
    let server = Server::ready();
    let input = "input";
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
                "[1] is a token id and the first item is a text",
            ),
            (
                b"{\"input\":[1,\"a\"]}",
                INPUT,
                input,
                "[1] is a text and the first item is a token id",
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
fn fields_that_come_twice_are_refused_and_the_first_fault_is_told() {
    let server = Server::ready();
    let twice = "duplicate_field";
    refuse(
        &server,
        &[
            (b"{\"input\":\"a\",\"input\":\"b\"}", twice, "input", "twice"),
            (b"{\"input\":null,\"input\":\"b\"}", twice, "input", "twice"),
            (b"{\"input\":\"a\",\"\\u0069nput\":\"b\"}", twice, "input", "twice"),
            (b"{\"model\":null,\"input\":\"a\",\"model\":null}", twice, "model", "twice"),
            (b"{\"user\":1,\"user\":2,\"input\":\"a\"}", twice, "user", "twice"),
            (b"{\"truncate\":true,\"truncate\":true}", twice, "truncate", "twice"),
            // The first thing that is wrong is the answer.
            (b"{\"truncate\":1,\"input\":1}", "invalid_value", "truncate", "true or false"),
            (b"{\"input\":1,\"truncate\":1}", INPUT, "input", "number"),
            (b"{\"input\":1, oops", INPUT, "input", "number"),
            (b"{\"model\":\"other\"}", INPUT, "input", "missing"),
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
        let text = server.post_bytes(DENSE, body).text();
        assert!(text.contains("\"message\":") && !text.contains("secret"), "{text}");
    }
}
