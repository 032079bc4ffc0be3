//! Bodies that are wrong: each is a 400 in JSON that names the place and what was expected.

use crate::support::*;

/// Code, param, a part of the message, and bodies.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [&'a [u8]]);

const JSON: &str = "invalid_json";
const INPUT: &str = "invalid_input";

#[track_caller]
fn refuse(server: &Server, cases: &[Case<'_>]) {
    for (code, param, part, bodies) in cases {
        for (body, path) in bodies.iter().flat_map(|body| ROUTES.map(|path| (body, path))) {
            let said = server.post_bytes(path, body.to_vec()).refused(code, param);
            assert!(said.says(part).0.len() < 300, "{}", said.0);
        }
    }
    // The server is as well as before.
    server.post_bytes(DENSE, TEXT).ok();
}

#[test]
#[rustfmt::skip]
fn bodies_that_are_not_json_are_refused() {
    let server = Server::ready();
    let open = "[".repeat(200_000);
    let objects = "{\"a\":".repeat(200_000);
    let nested = format!("{{\"extra\":{open}");
    refuse(&server, &[
        (JSON, "", "empty", &[b"", b" \r\n\t"]),
        (JSON, "", "byte order mark", &[b"\xef\xbb\xbf{\"input\":\"a\"}"]),
        (JSON, "", "UTF-8", &[
            b"\xff\xfe{\x00}\x00", b"{\"input\":\"\xc3\"}", b"{\"input\":\"\xed\xa0\x80\"}",
            b"{\"extra\":\"\xff\",\"input\":\"a\"}", b"\x1f\x8b\x08\x00",
        ]),
        (JSON, "", "byte 10", &[b"{\"input\":\"\xff\"}"]),
        (JSON, "", "line 1", &[
            b"{", b"{\"input\":\"a\"", b"{\"input\":\"a", b"{\"input\":[\"a\"",
            b"{\"input\":\"a\",}", b"{\"input\":[\"a\",]}", b"{\"input\" \"a\"}",
            b"{input:\"a\"}", b"{'input':'a'}", b"{\"input\":\"\\u12\"}", b"{\"input\":[NaN]}",
            b"{\"input\":[Infinity]}", b"{\"input\":[-Infinity]}",
            b"{\"sparse_min_weight\":NaN}", b"{\"input\":[01]}", b"{\"input\":[+1]}",
            b"{\"input\":[.5]}", b"{\"input\":[0x10]}", b"{\"input\":tru}",
            b"/* c */{\"input\":\"a\"}", b"\x00\x01\x02", b"input=a", nested.as_bytes(),
            objects.as_bytes(),
        ]),
        (JSON, "", "trailing", &[
            b"{\"input\":\"a\"} x", b"{\"input\":\"a\"}{}", b"{\"input\":\"a\"}\x00",
        ]),
        (JSON, "", "control character", &[b"{\"input\":\"a\nb\"}"]),
        (JSON, "", "escape", &[b"{\"input\":\"\\x\"}"]),
        (JSON, "", "half of a character", &[
            b"{\"input\":\"\\ud800\"}", b"{\"input\":\"\\ud800\\u0041\"}",
        ]),
        (JSON, "", "line 1 column 16 is half", &[b"{\"input\":\"\\udc00\"}"]),
        (JSON, "", "number out of range", &[b"{\"sparse_min_weight\":1e999}"]),
        (JSON, "", "one JSON object", &[
            b"[]", b"[{\"input\":\"a\"}]", b"\"a\"", b"null", b"true", b"12", open.as_bytes(),
        ]),
    ]);
}

#[test]
#[rustfmt::skip]
fn inputs_of_a_wrong_shape_are_refused_with_their_place() {
    let server = Server::ready();
    let input = "input";
    let deep = format!("{{\"input\":{}", "[".repeat(200_000));
    refuse(&server, &[
        (INPUT, input, "missing", &[b"{}", b"{\"inputs\":\"a\"}", b"{\"input\":null}"]),
        (INPUT, input, "empty list", &[b"{\"input\":[]}"]),
        (INPUT, input, "input is an object", &[
            b"{\"input\":{}}", b"{\"input\":{\"text\":\"a\"}}",
        ]),
        (INPUT, input, "input is a number", &[b"{\"input\":1}", b"{\"input\":1.5}"]),
        (INPUT, input, "input is a boolean", &[b"{\"input\":true}"]),
        (INPUT, input, "input[0] is null", &[b"{\"input\":[null]}"]),
        (INPUT, input, "input[0] is a boolean", &[b"{\"input\":[true]}"]),
        (INPUT, input, "input[0] is an object", &[b"{\"input\":[{}]}"]),
        (INPUT, input, "input[1] is null", &[b"{\"input\":[\"a\",null]}"]),
        (INPUT, input, "[1] is a token id and the first item is a text", &[
            b"{\"input\":[\"a\",1]}",
        ]),
        (INPUT, input, "[1] is a text and the first item is a token id", &[
            b"{\"input\":[1,\"a\"]}",
        ]),
        (INPUT, input, "input[1] is a list", &[
            b"{\"input\":[1,[2]]}", b"{\"input\":[\"a\",[1]]}",
        ]),
        (INPUT, input, "input[1] is a token id", &[b"{\"input\":[[1],2]}"]),
        (INPUT, input, "input[1] is a text", &[b"{\"input\":[[1],\"a\"]}"]),
        (INPUT, input, "input[1][0] is a text", &[b"{\"input\":[[1],[\"a\"]]}"]),
        (INPUT, input, "input[0][1] is null", &[b"{\"input\":[[1,null]]}"]),
        (INPUT, input, "input[0][0] is a list", &[b"{\"input\":[[[1]]]}", deep.as_bytes()]),
        (INPUT, input, "input[0][0] is a text", &[b"{\"input\":[[\"a\"]]}"]),
        (INPUT, input, "input[0] is a number below zero", &[b"{\"input\":[-1]}"]),
        (INPUT, input, "input[0][1] is a number below zero", &[b"{\"input\":[[5,-1]]}"]),
        (INPUT, input, "fraction", &[b"{\"input\":[1.0]}"]),
        (INPUT, input, "input[1] is a number with a fraction", &[b"{\"input\":[5,1e2]}"]),
        (INPUT, input, "beyond 64 bits", &[b"{\"input\":[99999999999999999999]}"]),
        ("token_id_out_of_range", input, "input[0] is larger", &[b"{\"input\":[4294967296]}"]),
        ("token_id_out_of_range", input, "[0][1]", &[
            b"{\"input\":[[1,18446744073709551615]]}",
        ]),
    ]);
}

#[test]
#[rustfmt::skip]
fn fields_that_come_twice_are_refused_and_the_first_fault_is_told() {
    let server = Server::ready();
    let twice = "duplicate_field";
    refuse(&server, &[
        (twice, "input", "twice", &[
            b"{\"input\":\"a\",\"input\":\"b\"}", b"{\"input\":null,\"input\":\"b\"}",
            b"{\"input\":\"a\",\"\\u0069nput\":\"b\"}",
        ]),
        (twice, "model", "twice", &[b"{\"model\":null,\"input\":\"a\",\"model\":null}"]),
        (twice, "user", "twice", &[b"{\"user\":1,\"user\":2,\"input\":\"a\"}"]),
        (twice, "truncate", "twice", &[b"{\"truncate\":true,\"truncate\":true}"]),
        ("invalid_value", "truncate", "true or false", &[b"{\"truncate\":1,\"input\":1}"]),
        (INPUT, "input", "number", &[b"{\"input\":1,\"truncate\":1}", b"{\"input\":1, oops"]),
        (INPUT, "input", "missing", &[b"{\"model\":\"other\"}"]),
    ]);
}
