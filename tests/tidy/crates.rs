//! The crates of the workspace: what `ARCHITECTURE.md` and `Cargo.toml` must say of each.

use std::collections::{BTreeMap, BTreeSet};

use testing::{files, in_code, table, text_of};

use super::{assert_none, rust_sources, uses, within};

/// A crate's `Cargo.toml`.
struct CrateManifest {
    /// `model`, or `duovec` for that of `src`.
    name: String,
    text: String,
}

impl CrateManifest {
    /// Lines with their sections.
    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut section = "";
        self.text.lines().map(move |line| {
            if line.starts_with('[') {
                section = line;
            }
            (section, line)
        })
    }

    /// Crates of this repository that it depends on; what only its tests use is left out.
    fn uses(&self) -> BTreeSet<&str> {
        let lines = self.lines().filter(|(section, _)| *section == "[dependencies]");
        lines.filter_map(|(_, line)| line.strip_prefix("duovec-")?.split('.').next()).collect()
    }
}

fn manifests() -> Vec<CrateManifest> {
    let of_crates = files("crates", &["toml"]).into_iter();
    let paths = of_crates.filter(|path| path.ends_with("/Cargo.toml"));
    let read = |path: String| {
        let name = path.split('/').rev().nth(1).unwrap_or("duovec").to_owned();
        CrateManifest { name, text: text_of(&path) }
    };
    ["Cargo.toml".to_owned()].into_iter().chain(paths).map(read).collect()
}

#[test]
fn the_architecture_has_the_crates_and_what_they_use() {
    let text = text_of("ARCHITECTURE.md");
    let rows = table(&text, "| crate |").into_iter().map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (in_code(cells[1]).collect::<String>(), in_code(cells[2]).collect())
    });
    let told: BTreeMap<String, BTreeSet<&str>> = rows.collect();
    let manifests = manifests();
    let found = manifests.iter().map(|manifest| (manifest.name.clone(), manifest.uses()));
    assert_eq!(told, found.collect());
}

#[test]
fn every_crate_has_a_readme_and_is_built_as_fast_as_the_server() {
    let all = manifests();
    let workspace = &all[0].text;
    let mut problems = Vec::new();
    for CrateManifest { name, text } in &all[1..] {
        let command = format!("$ cargo test -p duovec-{name}\n");
        if !text_of(&format!("crates/{name}/README.md")).contains(&command) {
            problems.push(format!("crates/{name}/README.md does not say {command}"));
        }
        if !workspace.contains(&format!("duovec-{name} = {{ opt-level = ")) {
            problems.push(format!("Cargo.toml: no profile of duovec-{name}"));
        }
        if !text.contains("[lints]\nworkspace = true\n") {
            problems.push(format!("crates/{name}/Cargo.toml: not the lints of the workspace"));
        }
    }
    assert_none(&problems);
}

/// What the compiler does not see, since both are modules of one crate.
#[test]
fn lower_modules_of_a_crate_do_not_use_higher_ones() {
    for (lower, higher) in [("scheduling/batch", "state"), ("model/package", "tokenize")] {
        let found = rust_sources().iter().filter(|one| within(&one.module, lower)).count();
        assert!(found > 1, "{lower} is found");
        let words = [format!("crate::{higher}"), format!("super::{higher}")];
        let words = words.each_ref().map(String::as_str);
        assert_none(&uses(&words, |module| within(module, lower)));
    }
}

/// The reason stands in the workspace when several crates have the dependency.
#[test]
fn every_dependency_has_its_reason() {
    let mut problems = Vec::new();
    for manifest in manifests() {
        let mut reason = false;
        for (section, line) in manifest.lines() {
            let inside = section.contains("dependencies]") && !line.starts_with('[');
            if line.starts_with('#') {
                reason = true;
            } else if line.trim().is_empty() || line.starts_with('[') {
                reason = false;
            } else if inside && !reason && !line.ends_with(".workspace = true") {
                problems.push(format!("{}: no reason for {line}", manifest.name));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn dependencies_of_the_workspace_are_those_of_several_crates() {
    let all = manifests();
    let shared = all[0].lines().filter(|(section, _)| *section == "[workspace.dependencies]");
    let names = shared.filter_map(|(_, line)| line.split_once(" = ")).map(|(name, _)| name);
    let names: Vec<&str> = names.filter(|name| !name.starts_with("duovec-")).collect();
    assert!(names.len() > 5, "they are found");
    let mut problems = Vec::new();
    for name in names {
        let line = format!("\n{name}.workspace = true\n");
        let users = all.iter().filter(|manifest| manifest.text.contains(&line)).count();
        if users < 2 {
            problems.push(format!("Cargo.toml: {name} has {users} users"));
        }
    }
    assert_none(&problems);
}
