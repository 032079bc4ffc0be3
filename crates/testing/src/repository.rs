//! What lies in the repository for tests: packages, and documents with tables of the program.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use tempfile::TempDir;

/// Makes the tests write a table instead of comparing with it.
const REWRITE: &str = "DUOVEC_REWRITE_GOLDEN";

/// Folders that are not ours, or not in the repository.
const LEFT_OUT: [&str; 4] = ["target", "third_party", "node_modules", "engines"];

/// Tests run at the same time, and one document has the tables of several.
static ALONE: Mutex<()> = Mutex::new(());

fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The folder of a package of a few kilobytes with a real graph and a real tokenizer.
pub fn tiny() -> PathBuf {
    place("tests/fixtures/tiny")
}

/// The folder of the default package, which `scripts/test.sh` makes.
pub fn default_package() -> PathBuf {
    let named = env::var_os("DUOVEC_PACKAGE").map(PathBuf::from);
    named.unwrap_or_else(|| place("engines/multilingual-e5-small"))
}

/// A copy of a package of `tests/fixtures`, with the tiny one's tokenizer where it has none of its
/// own.
///
/// # Panics
/// When there is no such package, or no room for it.
pub fn copy_of(fixture: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = fs::read_dir(place("tests/fixtures").join(fixture)).expect("it is there");
    let own = own.map(|entry| entry.expect("it can be listed").path());
    for path in [tiny().join("tokenizer.json")].into_iter().chain(own) {
        let name = path.file_name().expect("it has a name");
        fs::copy(&path, folder.path().join(name)).expect("it is copied");
    }
    folder
}

/// The text of a file, which is named from the root of the repository.
///
/// # Panics
/// When there is no such file, or it is not UTF-8.
pub fn text_of(path: &str) -> String {
    fs::read_to_string(place(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files below a folder with one of these endings, in their order, named from the root of the
/// repository; none when there is no such folder.
///
/// # Panics
/// When a folder cannot be listed.
pub fn files(folder: &str, endings: &[&str]) -> Vec<String> {
    let Ok(entries) = fs::read_dir(place(folder)) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("a folder can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let below = if folder == "." { name.to_owned() } else { format!("{folder}/{name}") };
        if path.is_dir() && !name.starts_with('.') && !LEFT_OUT.contains(&name) {
            found.extend(files(&below, endings));
        } else if endings.contains(&ending) {
            found.push(below);
        }
    }
    found.sort();
    found
}

/// The rows of the table of a document whose head begins with `head`.
pub fn table<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    rows.take_while(|line| line.starts_with('|')).collect()
}

/// What a text has between marks of code.
pub fn in_code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Compares the rows of a document's table whose head begins with `head` with those of the program.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn check_table(document: &str, head: &str, expected: &[String]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = text_of(document);
    let rows = table(&text, head);
    if env::var_os(REWRITE).is_some() {
        let text = text.replace(&rows.join("\n"), &expected.join("\n"));
        return fs::write(place(document), text).expect("the document can be written");
    }
    assert_eq!(
        rows, expected,
        "the table of {document} differs; when that is meant, rewrite it with\n\
         {REWRITE}=1 cargo test the_table_of"
    );
}
