//! `--dense-type`: what dense vectors consist of.

use arrow_array::types::{Int8Type, UInt8Type};
use vectors::small::{NumberList, NumberType, Ranges, to_bytes, to_numbers};

use super::*;

/// The tiny package, whose eight numbers reach to one and lie around zero.
fn package() -> Broken {
    Broken::with(&json!({"small_vectors": [{"reach": 1.0, "mean": vec![0.0; 8]}]}))
}

fn embed(corpus: &Folder, package: &Broken, out: &str, numbers: &str) {
    let more = ["--vectors", "dense", "--dense-type", numbers];
    // One row has no text.
    run(&mut corpus.command_with(package.path(), "in.jsonl", out, &more)).with_code(3);
}

#[test]
fn bytes_and_bits_are_the_same_in_every_form_of_output() {
    let (corpus, package) = (Folder::new(), package());
    let lines = texts(20).into_iter().map(|text| json!({"text": text}).to_string());
    let lines: Vec<String> = lines.chain([json!({"text": null}).to_string()]).collect();
    corpus.write("in.jsonl", lines.join("\n"));
    embed(&corpus, &package, "floats.jsonl", "f32");
    let floats = corpus.lines("floats.jsonl");
    let ranges = Ranges { reach: 1.0, mean: vec![0.0; 8] };
    for (numbers, of_crate, kind, missing) in [
        ("int8", NumberType::Int8, "'|i1'", 0x80_u8),
        ("uint8", NumberType::Uint8, "'|u1'", 0),
        ("binary", NumberType::Binary, "'|i1'", 0x80),
        ("ubinary", NumberType::Ubinary, "'|u1'", 0),
    ] {
        let name = |ending: &str| format!("{numbers}.{ending}");
        for ending in ["jsonl", "npy", "parquet"] {
            embed(&corpus, &package, &name(ending), numbers);
        }
        let lines = corpus.lines(&name("jsonl"));
        let npy = corpus.bytes(&name("npy"));
        let head = String::from_utf8_lossy(&npy[10..128]).into_owned();
        assert!(head.contains(kind), "{numbers}: {head}");
        let table = read_parquet(&corpus.path(&name("parquet")));
        let dense = table.column_by_name("dense").expect("there").as_fixed_size_list();
        let mut bytes = Vec::new();
        for (at, (row, line)) in floats.iter().zip(&lines).enumerate() {
            let floats = self::numbers(&row["dense"]);
            let list = to_numbers(&floats, of_crate, Some(&ranges));
            assert_eq!(line["dense"], json!(list), "{numbers}");
            let stored = dense.value(at);
            let stored = match stored.as_primitive_opt::<Int8Type>() {
                Some(signed) => NumberList::Signed(signed.values().to_vec()),
                None => NumberList::Unsigned(stored.as_primitive::<UInt8Type>().values().to_vec()),
            };
            assert_eq!(stored, list, "{numbers}");
            bytes.extend(to_bytes(&floats, of_crate, Some(&ranges)));
        }
        bytes.extend(vec![missing; bytes.len() / 20]);
        assert_eq!(npy[128..], bytes, "{numbers}");
    }
}

#[tokio::test]
async fn a_server_of_a_package_without_ranges_gives_floats_only() {
    let server = ready(&[]);
    let body = json!({"input": "a", "embedding_types": ["int8"]});
    let (status, answer) = server.ask("/v1/embeddings", Some(&body)).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("embedding_types")));
    let message = answer["error"]["message"].to_string();
    assert!(message.contains("no ranges") && message.contains("float16"), "{message}");
}
