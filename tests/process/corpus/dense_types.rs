//! `--dense-type`: what dense vectors consist of.

use arrow_array::types::{Int8Type, UInt8Type};

use super::*;

/// The tiny package, whose eight numbers reach to one and lie around zero.
fn package() -> Broken {
    let package = Broken::new();
    package.manifest(|manifest| {
        manifest["small_vectors"] = json!([{"reach": 1.0, "mean": vec![0.0; 8]}]);
    });
    package
}

fn embed(corpus: &Corpus, package: &Broken, out: &str, numbers: &str) {
    let more = ["--vectors", "dense", "--dense-type", numbers];
    // One row has no text.
    run(&mut corpus.command_with(package.path(), "in.jsonl", out, &more)).with_code(3);
}

/// What a type makes of the floats of a row, by its definition in the documents.
fn expected(row: &[f32], numbers: &str) -> Vec<i16> {
    let byte = |value: &f32| (value * 127.0).round_ties_even() as i16;
    let bit = |at: usize, value: &f32| if *value > 0.0 { 128 >> at } else { 0 };
    let octet = row.iter().enumerate().map(|(at, value)| bit(at, value)).sum::<i16>();
    match numbers {
        "int8" => row.iter().map(byte).collect(),
        "uint8" => row.iter().map(|value| byte(value) + 128).collect(),
        "binary" => vec![octet - 128],
        _ => vec![octet],
    }
}

#[test]
fn bytes_and_bits_are_the_same_in_every_form_of_output() {
    let (corpus, package) = (Corpus::new(), package());
    let lines = texts(20).into_iter().map(|text| json!({"text": text}).to_string());
    let lines: Vec<String> = lines.chain([json!({"text": null}).to_string()]).collect();
    fs::write(corpus.path("in.jsonl"), lines.join("\n")).expect("it is written");
    embed(&corpus, &package, "floats.jsonl", "f32");
    let floats = read_jsonl(&corpus.path("floats.jsonl"));
    for (numbers, kind, missing) in [
        ("int8", "'|i1'", 0x80_u8),
        ("uint8", "'|u1'", 0),
        ("binary", "'|i1'", 0x80),
        ("ubinary", "'|u1'", 0),
    ] {
        let name = |ending: &str| format!("{numbers}.{ending}");
        for ending in ["jsonl", "npy", "parquet"] {
            embed(&corpus, &package, &name(ending), numbers);
        }
        let lines = read_jsonl(&corpus.path(&name("jsonl")));
        let npy = fs::read(corpus.path(&name("npy"))).expect("it is there");
        let head = String::from_utf8_lossy(&npy[10..128]).into_owned();
        assert!(head.contains(kind), "{numbers}: {head}");
        let table = read_parquet(&corpus.path(&name("parquet")));
        let dense = table.column_by_name("dense").expect("there").as_fixed_size_list();
        let mut bytes = Vec::new();
        for (at, (row, line)) in floats.iter().zip(&lines).enumerate() {
            let list = expected(&self::numbers(&row["dense"]), numbers);
            assert_eq!(line["dense"], json!(list), "{numbers}");
            let stored = dense.value(at);
            let stored: Vec<i16> = match stored.as_primitive_opt::<Int8Type>() {
                Some(signed) => signed.values().iter().map(|&one| one.into()).collect(),
                None => {
                    let unsigned = stored.as_primitive::<UInt8Type>();
                    unsigned.values().iter().map(|&one| one.into()).collect()
                }
            };
            assert_eq!(stored, list, "{numbers}");
            bytes.extend(list.iter().map(|&one| one as u8));
        }
        bytes.extend(vec![missing; bytes.len() / 20]);
        assert_eq!(npy[128..], bytes, "{numbers}");
    }
}

#[tokio::test]
async fn a_package_without_ranges_gives_floats_only() {
    let corpus = Corpus::with_rows(3);
    let ended = corpus.embed("in.jsonl", "out", &["--dense-type", "int8"]);
    assert_says(&ended, 2, &["no ranges for bytes and bits", "8 numbers", "--dense-type f16"]);
    let server = ready(&[]);
    let body = json!({"input": "a", "embedding_types": ["int8"]});
    let (status, answer) = server.ask("/v1/embeddings", Some(&body)).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("embedding_types")));
    let message = answer["error"]["message"].to_string();
    assert!(message.contains("no ranges") && message.contains("float16"), "{message}");
}
