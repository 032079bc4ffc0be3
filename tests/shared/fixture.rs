//! Copies of the packages of the tests.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A folder with one of them, and the tiny one's tokenizer where it has none of its own.
pub(crate) fn copy_of(fixture: &str) -> TempDir {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = fs::read_dir(fixtures.join(fixture)).expect("it is there");
    let own = own.map(|entry| entry.expect("it can be listed").path());
    for path in [fixtures.join("tiny/tokenizer.json")].into_iter().chain(own) {
        let name = path.file_name().expect("it has a name");
        fs::copy(&path, folder.path().join(name)).expect("it is copied");
    }
    folder
}
