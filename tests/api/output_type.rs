//! Dense vectors in fewer bytes: `output_type` on every route that gives them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use half::f16;
use serde_json::{Value, json};

use crate::package::{REACH, mean};
use crate::support::{BOTH, CUT, DENSE, Gives, HIDDEN, SPARSE, Server, floats};

const EMBED: &str = "/embed";

/// The vector of a text, of which `dimensions` numbers are asked for, by its route.
fn vector(server: &Server, path: &str, numbers: &str, format: &str, dimensions: usize) -> Value {
    let text = if path == EMBED { "inputs" } else { "input" };
    let body = json!({
        text: "two words", "output_type": numbers, "encoding_format": format,
        "dimensions": dimensions,
    });
    let mut answer = server.post(path, &body).ok();
    if path == EMBED { answer[0].take() } else { answer["data"][0]["embedding"].take() }
}

/// What each type makes of floats, by its definition in the documents, as numbers and as bytes.
fn expected(row: &[f32], numbers: &str) -> (Vec<f64>, Vec<u8>) {
    let bytes = |values: Vec<i16>| {
        let numbers = values.iter().map(|&value| f64::from(value)).collect();
        (numbers, values.iter().map(|&value| value as u8).collect())
    };
    let byte = |value: &f32| (f64::from(*value) * 127.0 / f64::from(REACH)).round() as i16;
    let byte = |value: &f32| byte(value).clamp(-127, 127);
    let bits = |row: &[f32]| -> Vec<i16> {
        let bit = |(at, value): (usize, &f32)| if *value > mean(at) { '1' } else { '0' };
        let mut text: String = row.iter().enumerate().map(bit).collect();
        text.push_str(&"0".repeat(row.len().next_multiple_of(8) - row.len()));
        let octets = text.as_bytes().chunks(8);
        let octet = |octet| i16::from_str_radix(std::str::from_utf8(octet).expect("bits"), 2);
        octets.map(|bits| octet(bits).expect("bits")).collect()
    };
    match numbers {
        "float16" => {
            let halves = row.iter().map(|&value| f16::from_f32(value));
            let numbers = halves.clone().map(f64::from).collect();
            (numbers, halves.flat_map(|half| half.to_le_bytes()).collect())
        }
        "int8" => bytes(row.iter().map(byte).collect()),
        "uint8" => bytes(row.iter().map(|value| byte(value) + 128).collect()),
        "binary" => bytes(bits(row).iter().map(|octet| octet - 128).collect()),
        "ubinary" => bytes(bits(row)),
        other => panic!("{other} is not of this test"),
    }
}

#[test]
fn every_type_is_what_it_says_on_every_dense_route_as_a_list_and_in_base64() {
    let server = Server::ready();
    for (path, dimensions) in
        [(DENSE, HIDDEN), (DENSE, CUT), (BOTH, HIDDEN), (EMBED, HIDDEN), (EMBED, CUT)]
    {
        let row = floats(&vector(&server, path, "float", "float", dimensions));
        assert_eq!(row.len(), dimensions);
        for numbers in ["float16", "int8", "uint8", "binary", "ubinary"] {
            let (list, bytes) = expected(&row, numbers);
            let found = vector(&server, path, numbers, "float", dimensions);
            let found: Vec<f64> =
                found.as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
            let narrowed = |list: &[f64]| list.iter().map(|&x| x as f32).collect::<Vec<_>>();
            assert_eq!(narrowed(&found), narrowed(&list), "{path} {numbers} {dimensions}");
            if path == EMBED {
                continue;
            }
            let packed = vector(&server, path, numbers, "base64", dimensions);
            let packed = STANDARD.decode(packed.as_str().expect("a text")).expect("base64");
            assert_eq!(packed, bytes, "{path} {numbers} {dimensions}");
        }
    }
}

#[test]
fn bytes_and_bits_of_a_length_without_ranges_are_refused_with_the_lengths_that_have_them() {
    let server = Server::set(|set| set.gives = Gives::Dense);
    for numbers in ["int8", "uint8", "binary", "ubinary"] {
        let whole = json!({"input": "a", "output_dtype": numbers});
        server.post(DENSE, &whole).ok();
        let cut = json!({"input": "a", "output_dtype": numbers, "dimensions": CUT});
        let said = server.post(DENSE, &cut).refused("invalid_value", "output_dtype");
        said.says("vectors of 8 numbers only").says("\"float16\"");
    }
    let half = json!({"input": "a", "output_dtype": "float16", "dimensions": CUT});
    server.post(DENSE, &half).ok();
    let no_length = json!({"input": "a", "output_dtype": "int8", "dimensions": 5});
    server.post(DENSE, &no_length).refused("invalid_dimensions", "dimensions").says("use 4 or 8");
}

#[test]
fn lexical_weights_stay_floats() {
    let server = Server::ready();
    let body = json!({"input": "two words"});
    let plain = server.post(SPARSE, &body).ok();
    let bytes = json!({"input": "two words", "output_type": "int8"});
    assert_eq!(server.post(SPARSE, &bytes).ok(), plain);
    let (both, plain) = (server.post(BOTH, &bytes).ok(), server.post(BOTH, &body).ok());
    assert_eq!(both["data"][0]["sparse_values"], plain["data"][0]["sparse_values"]);
}
