//! Files of every form, good and bad.

use std::fs;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use tempfile::TempDir;

use super::*;

fn columns(kept: &[&str]) -> Columns {
    Columns { text: "text".to_owned(), kept: kept.iter().map(|&name| name.to_owned()).collect() }
}

/// A folder with one file.
fn file(name: &str, content: impl AsRef<[u8]>) -> (TempDir, Vec<InputFile>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    fs::write(&path, content).expect("written");
    let typed = [path.to_string_lossy().into_owned()];
    let files = InputFile::find(&typed, None, &[]).expect("it is there");
    (folder, files)
}

fn read(files: &[InputFile], kept: &[&str]) -> Result<Vec<Chunk>, CorpusError> {
    let mut input = InputRows::new(files, columns(kept), 100);
    let mut chunks = Vec::new();
    while let Some(chunk) = input.next()? {
        chunks.push(chunk);
    }
    let end = chunks.last().map_or(0, |chunk| chunk.position);
    assert_eq!(end, input.length(), "the position of the last row is the end of the input");
    Ok(chunks)
}

fn texts(chunks: &[Chunk]) -> Vec<(u64, Result<&str, &str>)> {
    let rows = chunks.iter().flat_map(|chunk| &chunk.rows);
    rows.map(|row| (row.number, row.text.as_deref().map_err(String::as_str))).collect()
}

fn fault(name: &str, content: &str, kept: &[&str]) -> String {
    let (_folder, files) = file(name, content);
    read(&files, kept).map(drop).expect_err("it is wrong").to_string()
}

#[test]
fn plain_lines_are_texts_empty_ones_too() {
    let (_folder, files) = file("a.txt", "one\n\ntwo\r\n\"three\"");
    let chunks = read(&files, &[]).expect("it is whole");
    let expected = [(1, Ok("one")), (2, Ok("")), (3, Ok("two")), (4, Ok("\"three\""))];
    assert_eq!(texts(&chunks), expected);
    for (name, content) in [("a.txt", "one\n"), ("a.jsonl", "\"one\"\n\n\"two\"\n")] {
        let error = fault(name, content, &["id"]);
        let expected = "its lines are bare texts, which have no field `id` to keep";
        assert!(error.contains(expected) && error.contains("leave --keep out"), "{error}");
    }
}

#[test]
fn json_lines_are_objects_or_texts_and_blank_lines_are_nothing() {
    let lines = "{\"text\": \"one\", \"id\": 7}\n\n\"two\"\n{\"id\": 8, \"text\": \"\"}\n";
    let (_folder, files) = file("a.jsonl", lines);
    let chunks = read(&files, &["id"]).expect("it is whole");
    assert_eq!(texts(&chunks), [(1, Ok("one")), (3, Ok("two")), (4, Ok(""))]);
    let ids: Vec<_> = chunks[0].kept[0].as_primitive::<Int64Type>().iter().collect();
    assert_eq!(ids, [Some(7), None, Some(8)]);
}

#[test]
fn json_rows_that_are_wrong_say_why() {
    let long = format!("{{\"text\": \"{}\"}}", "a".repeat(101));
    let lines = [
        "{\"text\": \"one\"}",
        "{\"text\": 5}",
        "{\"body\": \"x\"}",
        "{\"text\": ",
        "[1]",
        "{\"text\": null}",
        &long,
    ];
    let (_folder, files) = file("a.jsonl", lines.join("\n"));
    let chunks = read(&files, &[]).expect("the file is whole");
    let found = texts(&chunks);
    assert_eq!(found[0], (1, Ok("one")));
    let reasons = [
        "the field `text` is a number",
        "there is no field `text`",
        "not valid JSON: EOF while parsing a value at column 9",
        "neither an object nor a text",
        "the field `text` is null",
        "more than 100 bytes",
    ];
    for (row, reason) in found[1..].iter().zip(reasons) {
        assert!(row.1.is_err_and(|seen| seen.contains(reason)), "{reason}: {row:?}");
    }
}

/// One of both would be taken, and nobody knows which was meant. Fields that nobody asked for are
/// passed over, whatever they hold.
#[test]
fn a_field_that_comes_twice_makes_its_row_wrong_if_it_is_read() {
    let lines = [
        "{\"text\": \"a\", \"text\": \"b\"}",
        "{\"text\": \"c\", \"id\": 1, \"id\": 1}",
        "{\"text\": \"d\", \"id\": 1, \"body\": 1, \"body\": 2}",
    ];
    let (_folder, files) = file("a.jsonl", lines.join("\n"));
    let chunks = read(&files, &["id"]).expect("the file is whole");
    let twice = [
        (1, Err("the field `text` comes twice")),
        (2, Err("the field `id` comes twice")),
        (3, Ok("d")),
    ];
    assert_eq!(texts(&chunks), twice);
}

#[test]
fn only_fields_that_are_read_may_not_be_nested_deeply() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let line = |levels| format!("{{\"text\": \"a\", \"id\": {}}}\n", nested(levels));
    let (_folder, files) = file("a.jsonl", [126, 127, 100_000].map(line).concat());
    let chunks = read(&files, &["id"]).expect("the file is whole");
    let found = texts(&chunks);
    assert_eq!(found[0], (1, Ok("a")));
    for row in &found[1..] {
        assert!(row.1.is_err_and(|reason| reason.contains("more than 126 levels")), "{row:?}");
    }
    let chunks = read(&files, &[]).expect("the file is whole");
    assert_eq!(texts(&chunks), [(1, Ok("a")), (2, Ok("a")), (3, Ok("a"))]);
}

#[test]
fn a_name_is_not_missed_in_rows_that_cannot_be_read() {
    let said = |lines: [&str; 3]| fault("a.jsonl", &lines.join("\n"), &["id"]);
    let error = said(["{\"text\": \"a\"}", "{\"id\": 1, \"text\"}", "\"b\""]);
    let expected = "of its first 3 rows 2 could be read, and none of these has a field `id`; the \
                    fields of the first are text";
    assert!(error.contains(expected), "{error}");
    let error = said(["{\"id\": 1, \"text\"}", "x", "{"]);
    let expected = "none of its first 3 rows could be read; of the first, the line is not valid \
                    JSON: expected `:` at column 17";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_kept_field_of_another_type_makes_its_row_wrong() {
    let mut lines: String =
        (0..CHUNK_ROWS).map(|id| format!("{{\"text\":\"a\",\"id\":{id}}}\n")).collect();
    lines += "{\"text\": \"b\", \"id\": \"x\"}\n{\"text\": \"c\", \"id\": 5}\n";
    let (_folder, files) = file("a.jsonl", lines);
    let chunks = read(&files, &["id"]).expect("the file is whole");
    let found = texts(&chunks);
    assert_eq!(found.last(), Some(&(CHUNK_ROWS as u64 + 2, Ok("c"))));
    let wrong = found[CHUNK_ROWS].1.expect_err("its id is a text");
    assert!(wrong.contains("the field `id` is \"x\"") && wrong.contains("Int64"), "{wrong}");
}

/// JSON's reader makes floats of them, so that two hashes could become one.
#[test]
fn kept_whole_numbers_beyond_64_bits_are_texts_of_their_digits() {
    let beyond = ["18446744073709551616", "-9223372036854775809", "5"];
    let line = |id: &str| format!("{{\"text\":\"a\",\"id\":{id}}}\n");
    let (_folder, files) = file("a.jsonl", beyond.map(line).concat());
    let column = Arc::clone(&read(&files, &["id"]).expect("it is whole")[0].kept[0]);
    assert_eq!([0, 1, 2].map(|row| kept::text(&column, row)), beyond.map(Some));
    let (_folder, files) = file("a.jsonl", ["1e30", "-1.5E300"].map(line).concat());
    let chunks = read(&files, &["id"]).expect("it is whole");
    assert_eq!(chunks[0].kept[0].data_type(), &DataType::Float64);
    let (_folder, files) = file("a.jsonl", "{\"text\":18446744073709551616}");
    let chunks = read(&files, &["text"]).expect("it is whole");
    assert!(texts(&chunks)[0].1.is_err_and(|reason| reason.contains("is a number")));
}

#[test]
fn kept_floats_are_those_that_were_written() {
    let written = ["0.9452706955539223", "5e-324", "-0.0", "1.7976931348623157e+308", "-0"];
    let line = |id: &str| format!("{{\"text\":\"a\",\"id\":{id}}}\n");
    let (_folder, files) = file("a.jsonl", written.map(line).concat());
    let column = Arc::clone(&read(&files, &["id"]).expect("it is whole")[0].kept[0]);
    let found: Vec<String> = (0..4).map(|row| kept::json(&column, row).to_string()).collect();
    assert_eq!(found, written[..4]);
    // The reader's own mark of a part that is left as it is written is a name like any other.
    let marked = r#"{"$serde_json::private::RawValue":"{\"text\":\"a\",\"id\":0.5}"}"#;
    assert!(fault("a.jsonl", marked, &["id"]).contains("has a field `text`"));
}

/// Whatever is kept of them, or not read at all.
#[test]
fn a_chunk_of_large_records_has_few_of_them() {
    let line = |size: usize| format!("{{\"text\":\"a\",\"id\":\"{}\"}}\n", "b".repeat(size));
    let content = line(1).repeat(CHUNK_ROWS) + &line(1024 * 1024).repeat(10);
    let (_folder, files) = file("a.jsonl", content);
    for kept in [&["id"][..], &[]] {
        let chunks = read(&files, kept).expect("the file is whole");
        let rows: Vec<usize> = chunks.iter().map(|chunk| chunk.rows.len()).collect();
        assert_eq!(rows, [CHUNK_ROWS, 4, 4, 2]);
    }
}

/// However long their rows are.
#[test]
fn a_kept_column_has_the_type_of_its_first_1024_values() {
    let long = "b".repeat(10 * 1024);
    let line = |id: usize| match id + 1 {
        CHUNK_ROWS => format!("{{\"text\": \"{long}\", \"id\": 0.5}}\n"),
        _ => format!("{{\"text\": \"{long}\", \"id\": {id}}}\n"),
    };
    let (_folder, files) = file("a.jsonl", (0..CHUNK_ROWS).map(line).collect::<String>());
    let chunks = read(&files, &["id"]).expect("the file is whole");
    assert_eq!(chunks[0].kept[0].data_type(), &DataType::Float64);
}

#[test]
fn csv_has_quotes_and_names() {
    let content = "\u{feff}id,text\n1,\"a, \"\"b\"\"\nc\"\n2,d\n3\n4,\"e\",f\n";
    let (_folder, files) = file("a.csv", content);
    let chunks = read(&files, &["id"]).expect("it is whole");
    let found = texts(&chunks);
    assert_eq!(found[..2], [(1, Ok("a, \"b\"\nc")), (2, Ok("d"))]);
    assert!(found[2].1.is_err_and(|reason| reason.contains("1 fields, the first row 2")));
    assert!(found[3].1.is_err_and(|reason| reason.contains("3 fields")));
    assert_eq!(kept::text(&chunks[0].kept[0], 1), Some("2"));
}

/// Else the rows between two quotes would be the text of one, and nobody would know.
#[test]
fn a_stray_quote_makes_the_row_wrong_that_hides_others() {
    let rows = |content: &str| {
        let (_folder, files) = file("a.csv", content);
        let chunks = read(&files, &["id"]).expect("it is read");
        let own = |(number, text): (u64, Result<&str, &str>)| {
            (number, text.map(str::to_owned).map_err(str::to_owned))
        };
        texts(&chunks).into_iter().map(own).collect::<Vec<_>>()
    };
    for mark in ["", "\u{feff}"] {
        for end in ["", "\n", "\r\n"] {
            let content = format!("{mark}id,text\n1,hello\n2,\"stray\n3,three\n4,four{end}");
            let found = rows(&content);
            assert_eq!(found.len(), 2);
            assert_eq!(found[0], (1, Ok("hello".to_owned())));
            let problem = "a quote opened in line 3 is never closed: the rest of the file is read \
                           as this row; close it, or double a quote that is text";
            assert_eq!(found[1].1, Err(problem.to_owned()));
        }
    }
    let found = rows("id,text\n1,\"stray\n2,two\n3,\"x\"\n4,\"a \"\"b\"\"\n\" \n5,c\n");
    let problem = "a quote opened in line 2 is closed in line 4 before the end of a field: these \
                   lines are read as one row; close it, or double a quote that is text";
    assert_eq!(found[0], (1, Err(problem.to_owned())));
    assert_eq!(found[1..], [(2, Ok("a \"b\"\n ".to_owned())), (3, Ok("c".to_owned()))]);
    // Within a line no row is hidden.
    assert_eq!(rows("id,text\n1,\"a\"b\n2,c\n")[1], (2, Ok("c".to_owned())));
}

#[test]
fn bytes_that_are_not_utf_8_make_their_row_wrong() {
    let bytes: [(&str, &[u8]); 3] = [
        ("a.txt", b"one\nt\xffwo\nthree\n"),
        ("a.jsonl", b"\"one\"\n\"t\xffwo\"\n\"three\"\n"),
        ("a.csv", b"text\none\nt\xffwo\nthree\n"),
    ];
    for (name, bytes) in bytes {
        let (_folder, files) = file(name, bytes);
        let chunks = read(&files, &[]).expect("the file is whole");
        let found = texts(&chunks);
        assert_eq!((found[0].1, found[2].1), (Ok("one"), Ok("three")), "{name}");
        assert!(found[1].1.is_err_and(|reason| reason.contains("is not UTF-8")), "{name}");
    }
}

/// Some editors write UTF-16; a file that lost a block to a crash has zeros there.
#[test]
fn zeros_are_utf_16_at_every_second_byte_only() {
    let utf_16 = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    };
    let text = "\"one\"\n";
    for text in [text, "\u{feff}\"日本\"\n"] {
        for bytes in [utf_16(text, u16::to_le_bytes), utf_16(text, u16::to_be_bytes)] {
            let (_folder, files) = file("a.jsonl", bytes);
            let error = read(&files, &[]).map(drop).expect_err("it is UTF-16").to_string();
            assert!(error.contains("seems to be in UTF-16") && error.contains("iconv"), "{error}");
        }
    }
    for start in ["\0", "\"\0", "\0\0\0\0\0\0", "\0a", "a\0\0\0"] {
        let (_folder, files) = file("a.jsonl", format!("{start}\n\"two\"\n"));
        let chunks = read(&files, &[]).expect("the file is whole");
        let found = texts(&chunks);
        assert!(found[0].1.is_err_and(|reason| reason.contains("not valid JSON")), "{found:?}");
        assert_eq!(found[1], (2, Ok("two")));
    }
    let (_folder, files) = file("a.txt", "a\0b\n");
    assert_eq!(texts(&read(&files, &[]).expect("it is whole")), [(1, Ok("a\0b"))]);
}

/// It would take the rest of the file into memory.
#[test]
fn a_quote_that_is_never_closed_ends_the_reading() {
    let mut content = b"text\nsmall\n\"".to_vec();
    content.resize(70 * 1024 * 1024, b'a');
    let (_folder, files) = file("a.csv", content);
    let mut input = InputRows::new(&files, columns(&[]), 100);
    let error = input.next().map(drop).expect_err("the record does not end").to_string();
    assert!(error.contains("closing quote"), "{error}");
}

#[test]
fn a_line_that_is_too_long_is_passed_over() {
    let mut content = b"one\n".to_vec();
    content.resize(70 * 1024 * 1024, b'a');
    content.extend_from_slice(b"\ntwo\n");
    let (_folder, files) = file("a.txt", content);
    let chunks = read(&files, &[]).expect("the file is whole");
    let found = texts(&chunks);
    assert_eq!((found[0], found[2]), ((1, Ok("one")), (3, Ok("two"))));
    assert!(found[1].1.is_err());
}

/// Of a device, or of a program that writes no line ends.
#[test]
fn a_line_that_may_never_end_ends_the_reading() {
    use std::io::{Read as _, repeat};
    let endless = b"one\n".chain(repeat(b'a').take(1200 * 1024 * 1024));
    let mut lines = Lines::of(Box::new(endless));
    assert_eq!(lines.next().expect("it is short"), Some(Ok(&b"one"[..])));
    let error = lines.next().map(drop).expect_err("it goes on and on").to_string();
    assert!(error.contains("line 2 has more than 1073741824 bytes"), "{error}");
}

#[test]
fn names_and_patterns_are_files_in_their_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["b.jsonl", "a.jsonl", "c.csv", "d"] {
        fs::write(folder.path().join(name), "").expect("written");
    }
    let find = |names: &[&str], format| {
        let typed = |name: &&str| match *name {
            "-" => "-".to_owned(),
            name => folder.path().join(name).to_string_lossy().into_owned(),
        };
        let typed: Vec<String> = names.iter().map(typed).collect();
        let name = |file: InputFile| file.path.file_name().map(|name| name.to_owned());
        let found = InputFile::find(&typed, format, &[]).map_err(|error| error.to_string())?;
        let names = found.into_iter().filter_map(name).map(|name| name.into_string());
        Ok::<_, String>(names.collect::<Result<Vec<_>, _>>().expect("UTF-8"))
    };
    assert_eq!(
        find(&["c.csv", "*.jsonl"], None),
        Ok(vec!["c.csv".into(), "a.jsonl".into(), "b.jsonl".into()])
    );
    assert!(find(&["d"], None).is_err_and(|error| error.contains("--input-format")));
    assert_eq!(find(&["d"], Some(InputFormat::Lines)), Ok(vec!["d".into()]));
    assert!(
        find(&["-"], Some(InputFormat::Parquet)).is_err_and(|error| error.contains("name a file"))
    );
    assert_eq!(find(&["-"], Some(InputFormat::Jsonl)), Ok(vec!["-".into()]));
}
