//! The tables that are made from the program.

use std::env;
use std::fs;

use duovec::metrics::names::{METRICS, Metric};
use settings::{SETTINGS, Setting};

use super::{Document, root};

/// Makes the tests write what they would compare with.
const REWRITE: &str = "DUOVEC_REWRITE_GOLDEN";

#[test]
fn the_table_of_settings_is_that_of_the_program() {
    check("docs/settings.md", "| setting |", &SETTINGS.iter().map(setting).collect::<Vec<_>>());
}

#[test]
fn the_table_of_metrics_is_that_of_the_program() {
    let expected: Vec<String> = METRICS.iter().map(|one| metric(one)).collect();
    check("docs/metrics.md", "| metric |", &expected);
}

/// Compares the rows of a table with what they should be.
fn check(name: &str, head: &str, expected: &[String]) {
    if env::var_os(REWRITE).is_some() {
        let old = Document::read(name);
        let rows = old.rows(head).join("\n");
        let text = old.text.replace(&rows, &expected.join("\n"));
        fs::write(root().join(name), text).expect("the document can be written");
    }
    assert_eq!(
        Document::read(name).rows(head),
        expected,
        "the table of {name} differs; when that is meant, rewrite it with\n\
         {REWRITE}=1 cargo test --test readme the_table_of"
    );
}

fn setting(setting: &Setting) -> String {
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

fn metric(metric: &Metric) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let labels = if labels.is_empty() { "—".to_owned() } else { labels.join(", ") };
    format!("| `{}` | {} | {labels} | {} |", metric.name, metric.kind.name(), metric.help)
}
