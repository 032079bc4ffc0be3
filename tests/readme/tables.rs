//! The tables that are made from the program.

use duovec::metrics::names::{METRICS, Metric};
use settings::{SETTINGS, Setting};
use testing::check_table;

#[test]
fn the_table_of_settings_is_that_of_the_program() {
    let expected: Vec<String> = SETTINGS.iter().map(setting).collect();
    check_table("docs/settings.md", "| setting |", &expected);
}

#[test]
fn the_table_of_metrics_is_that_of_the_program() {
    let expected: Vec<String> = METRICS.iter().map(|one| metric(one)).collect();
    check_table("docs/metrics.md", "| metric |", &expected);
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
