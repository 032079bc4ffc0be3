//! Files that use each other in a circle, which can only be read together.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, assert_none, rust_sources, within};

/// More than two files are no pair.
const MAX_FILES: usize = 2;

type Uses = BTreeMap<String, BTreeSet<String>>;

/// Which files use which others of their crate. A module and its own folder are one to readers.
fn uses() -> Uses {
    let sources = rust_sources();
    let modules: BTreeSet<&str> = sources.iter().map(|source| source.module.as_str()).collect();
    let file_of = |path: &str| {
        let mut path = path;
        loop {
            if modules.contains(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once('/')?.0;
        }
    };
    let used = |source: &Source| -> BTreeSet<String> {
        let found = source.used().into_iter().filter_map(|path| file_of(&path));
        let own = source.module.as_str();
        found.filter(|one| !within(one, own) && !within(own, one)).collect()
    };
    sources.iter().map(|source| (source.module.clone(), used(source))).collect()
}

/// All that a file uses, and what that uses, and so on.
fn reached<'a>(uses: &'a Uses, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(one) = next.pop() {
        for used in &uses[one] {
            if found.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    found
}

#[test]
fn no_more_than_two_files_use_each_other_in_a_circle() {
    let uses = uses();
    let count: usize = uses.values().map(BTreeSet::len).sum();
    assert!(count > 400, "uses are found: {count}");
    let reached: BTreeMap<&str, _> =
        uses.keys().map(|one| (&one[..], reached(&uses, one))).collect();
    let circle = |one: &str| -> BTreeSet<&str> {
        let back = |other: &&&str| reached[**other].contains(one);
        reached[one].iter().filter(back).copied().collect()
    };
    let circles: BTreeSet<_> = uses.keys().map(|one| circle(one)).collect();
    let large = circles.iter().filter(|circle| circle.len() > MAX_FILES);
    assert_none(&large.map(|circle| format!("{circle:?}")).collect::<Vec<_>>());
}
