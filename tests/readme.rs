//! The README and the documents say what the program says.

use std::fs;
use std::path::{Path, PathBuf};

use duovec::config::settings::{SETTINGS, Setting};
use duovec::metrics::names::METRICS;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn document(name: &str) -> String {
    fs::read_to_string(path(name)).expect("the document is there")
}

fn readme() -> String {
    document("README.md")
}

/// The rows of the table whose head begins with `head`.
fn rows<'a>(document: &'a str, head: &str) -> Vec<&'a str> {
    document
        .lines()
        .skip_while(|line| !line.starts_with(head))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect()
}

/// Makes the tests write what they would compare with.
const REWRITE: &str = "DUOVEC_REWRITE_GOLDEN";

fn row_of(setting: &Setting) -> String {
    let mut name = format!("`--{}`", setting.flag);
    if setting.flag != setting.name {
        name = format!("{name}, `{}`", setting.variable());
    }
    let default = match setting.default {
        "" => "—".to_owned(),
        default => format!("`{default}`"),
    };
    format!("| {name} | {default} | {} |", setting.help)
}

#[test]
fn the_table_of_settings_is_that_of_the_program() {
    let name = "docs/settings.md";
    let expected: Vec<String> = SETTINGS.iter().map(row_of).collect();
    if std::env::var_os(REWRITE).is_some() {
        let old = document(name);
        let table = rows(&old, "| setting |").join("\n");
        fs::write(path(name), old.replace(&table, &expected.join("\n"))).expect("it is written");
    }
    let document = document(name);
    assert_eq!(
        rows(&document, "| setting |"),
        expected,
        "when the settings are meant to change, rewrite their table with\n\
         {REWRITE}=1 cargo test --test readme the_table_of_settings"
    );
}

#[test]
fn the_table_of_metrics_is_that_of_the_program() {
    let document = document("docs/metrics.md");
    let expected: Vec<String> = METRICS
        .iter()
        .map(|metric| {
            let labels: Vec<String> =
                metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "—".to_owned() } else { labels.join(", ") };
            format!("| `{}` | {} | {labels} | {} |", metric.name, metric.kind.name(), metric.help)
        })
        .collect();
    let rows = rows(&document, "| metric |");
    assert_eq!(rows, expected, "the table should be:\n{}\n", expected.join("\n"));
}

#[test]
fn files_that_the_readme_names_are_there() {
    let readme = readme();
    let named = readme.split(['`', '(', ')', ' ', '\n']).filter(|word| {
        (word.starts_with("scripts/") || word.ends_with(".md")) && !word.contains('<')
    });
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in named {
        assert!(root.join(name).exists(), "{name}");
    }
}

#[test]
fn headings_that_the_readme_links_to_are_there() {
    let readme = readme();
    let headings = readme.lines().filter(|line| line.starts_with('#'));
    // As GitHub makes them: lower case, no punctuation, hyphens for spaces.
    let anchors: Vec<String> = headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            words.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect()
        })
        .collect();
    let links = readme.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    for link in links {
        assert!(anchors.iter().any(|anchor| anchor == link), "#{link} is no heading: {anchors:?}");
    }
}
