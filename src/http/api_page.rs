//! Tables of `docs/api.md` that are made from the program.

use std::fs;
use std::path::Path;

use parking_lot::Mutex;

/// Makes the tests write a table instead of comparing with it.
const REWRITE: &str = "DUOVEC_REWRITE_GOLDEN";

/// Tests run at the same time, and one page has the tables of several.
static PAGE: Mutex<()> = Mutex::new(());

/// Compares the rows of the table that begins with `head` with those of the program.
#[track_caller]
pub(super) fn check_table(head: &str, expected: &[String]) {
    let _alone = PAGE.lock();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    let page = fs::read_to_string(&path).expect("the document is there");
    let rows = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n");
    let expected = expected.join("\n");
    if std::env::var_os(REWRITE).is_some() {
        let page = page.replace(&rows, &expected);
        return fs::write(&path, page).expect("the document can be written");
    }
    assert_eq!(
        rows, expected,
        "the table of docs/api.md differs; when that is meant, rewrite it with\n\
         {REWRITE}=1 cargo test --lib the_table_of"
    );
}
