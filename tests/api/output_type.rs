//! Dense vectors in fewer bytes: `output_type` on every route that gives them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use vectors::small::{NumberType, Ranges, to_bytes, to_numbers};

use crate::package::{REACH, mean};
use crate::support::*;

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

#[test]
fn every_type_is_what_it_says_on_every_dense_route_as_a_list_and_in_base64() {
    let server = Server::ready();
    for (path, dimensions) in
        [(DENSE, HIDDEN), (DENSE, CUT), (BOTH, HIDDEN), (EMBED, HIDDEN), (EMBED, CUT)]
    {
        let row = floats(&vector(&server, path, "float", "float", dimensions));
        assert_eq!(row.len(), dimensions);
        let ranges = Ranges { reach: REACH, mean: (0..dimensions).map(mean).collect() };
        for (name, numbers) in [
            ("float16", NumberType::Float16),
            ("int8", NumberType::Int8),
            ("uint8", NumberType::Uint8),
            ("binary", NumberType::Binary),
            ("ubinary", NumberType::Ubinary),
        ] {
            // What these give is worked out by hand in the tests of the crate.
            let list = serde_json::to_string(&to_numbers(&row, numbers, Some(&ranges)));
            let list: Value = serde_json::from_str(&list.expect("numbers")).expect("a list");
            let found = vector(&server, path, name, "float", dimensions);
            assert_eq!(found, list, "{path} {name} {dimensions}");
            if path == EMBED {
                continue;
            }
            let packed = vector(&server, path, name, "base64", dimensions);
            let packed = STANDARD.decode(packed.as_str().expect("a text")).expect("base64");
            let bytes = to_bytes(&row, numbers, Some(&ranges));
            assert_eq!(packed, bytes, "{path} {name} {dimensions}");
        }
    }
}

#[test]
fn bytes_and_bits_of_a_length_without_ranges_are_refused_with_the_lengths_that_have_them() {
    let server = Server::of(Gives::Dense);
    for numbers in ["int8", "uint8", "binary", "ubinary"] {
        server.post(DENSE, &json!({"input": "a", "output_dtype": numbers})).ok();
        let cut = json!({"input": "a", "output_dtype": numbers, "dimensions": CUT});
        let said = server.post(DENSE, &cut).refused("invalid_value", "output_dtype");
        said.says("vectors of 8 numbers only…\"float16\"");
    }
    server.post(DENSE, &json!({"input": "a", "output_dtype": "float16", "dimensions": CUT})).ok();
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
