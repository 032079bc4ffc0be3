//! Links lead somewhere, and pages stay short enough to read.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Document, documents, is_there};

/// The README is read by people who do not know yet whether they want more.
const README_LINES: usize = 150;
/// A table's row cannot be broken, and neither can a line of code.
const LINE_CHARS: usize = 120;
/// A script writes the first; the other grows by whole lines that are not broken anew.
const LONG_LINES: [&str; 2] = ["docs/retrieval/tables.md", "CHANGELOG.md"];

#[test]
fn every_link_and_anchor_leads_somewhere() {
    let mut problems = Vec::new();
    for document in documents() {
        for link in links(&document) {
            if let Err(problem) = follow(&document, &link) {
                problems.push(format!("{}: {link}: {problem}", document.name));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let readme = Document::read("README.md");
    let lines = readme.text.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, {README_LINES} are allowed");
}

#[test]
fn lines_of_documents_are_short() {
    let mut problems = Vec::new();
    for document in documents() {
        if LONG_LINES.contains(&document.name.as_str()) {
            continue;
        }
        for (number, line) in document.prose() {
            let chars = line.chars().count();
            if chars > LINE_CHARS && !line.starts_with('|') {
                problems.push(format!("{}:{number}: {chars} characters", document.name));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_decision_is_in_the_list_of_decisions() {
    let list = Document::read("docs/decisions/README.md");
    for document in documents() {
        let decision = document.name.strip_prefix("docs/decisions/");
        let decision = decision.filter(|name| *name != "README.md");
        assert!(
            decision.is_none_or(|name| list.text.contains(&format!("({name})"))),
            "{decision:?}"
        );
    }
}

/// Where the links of a document lead to, outside of code.
fn links(document: &Document) -> Vec<String> {
    let prose: Vec<&str> = document.prose().map(|(_, line)| line).collect();
    // Code has brackets of its own.
    let prose: String = prose.join("\n").split('`').step_by(2).collect();
    let ends = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.map(str::to_owned).collect()
}

/// Checks that the file of a link is there, and has the heading that it names.
fn follow(document: &Document, link: &str) -> Result<(), String> {
    if link.starts_with("https://") {
        return Ok(());
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let from = Path::new(&document.name);
    let to = match path {
        "" => from.to_owned(),
        path => from.parent().unwrap_or(Path::new("")).join(path),
    };
    if !is_there(&to) {
        return Err(format!("{} is not there", to.display()));
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let anchors = anchors(&Document::read(&to.to_string_lossy()));
    let found = anchors.contains(anchor);
    if found { Ok(()) } else { Err(format!("no such heading among {anchors:?}")) }
}

/// The anchors of a document's headings, as GitHub makes them: lower case, hyphens for spaces, no
/// other punctuation.
fn anchors(document: &Document) -> BTreeSet<String> {
    let headings = document.prose().filter_map(|(_, line)| line.strip_prefix('#'));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_');
    headings
        .map(|heading| {
            let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            words.chars().filter(kept).collect()
        })
        .collect()
}
