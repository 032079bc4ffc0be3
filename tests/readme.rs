//! The README says what the program says.

use std::fs;
use std::path::Path;

use duovec::config::settings::SETTINGS;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    fs::read_to_string(path).expect("the README is there")
}

#[test]
fn the_table_of_settings_is_that_of_the_program() {
    let readme = readme();
    let rows: Vec<&str> = readme
        .lines()
        .skip_while(|line| !line.starts_with("| setting |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let expected: Vec<String> = SETTINGS
        .iter()
        .map(|setting| {
            let name = match setting.has_flag {
                true => format!("`--{}`", setting.name),
                false => format!("`{}`", setting.variable()),
            };
            let default = match setting.default {
                "" => "—".to_owned(),
                default => format!("`{default}`"),
            };
            format!("| {name} | {default} | {} |", setting.help)
        })
        .collect();
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
