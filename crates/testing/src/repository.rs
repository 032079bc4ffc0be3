//! What lies in the repository for tests: packages, and documents with tables of the program.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use tempfile::TempDir;

/// Makes the tests write a table instead of comparing with it.
const REWRITE: &str = "DUOVEC_REWRITE_GOLDEN";

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

/// Compares the rows of a document's table whose head begins with `head` with those of the program.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn check_table(document: &str, head: &str, expected: &[String]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = place(document);
    let text = fs::read_to_string(&path).expect("the document is there");
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    if env::var_os(REWRITE).is_some() {
        let text = text.replace(&rows.join("\n"), &expected.join("\n"));
        return fs::write(&path, text).expect("the document can be written");
    }
    assert_eq!(
        rows, expected,
        "the table of {document} differs; when that is meant, rewrite it with\n\
         {REWRITE}=1 cargo test the_table_of"
    );
}
