//! The rules of `ARCHITECTURE.md` that text can check.

use std::collections::{BTreeMap, BTreeSet};

use testing::{files, in_code, table, text_of};

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/http_layers.rs"]
mod http_layers;

/// Modules of `src` by layer, lowest first. A module uses modules of lower layers and its own
/// folder only. The compiler holds the layers of `crates`.
const LAYERS: &[&[&str]] = &[
    &["allocator", "locks", "metrics", "progress"],
    &["engine", "traces"],
    &["scheduler"],
    &["worker", "health"],
    &["service"],
    &["http", "corpus"],
    &["telemetry", "descriptors", "shutdown", "supervisor"],
    &["cli"],
    &["lib", "main"],
];

/// Modules and crates that do no I/O, start no thread, read no clock and cannot block.
const PURE: &[&str] = &["scheduling", "vectors", "worker/tuning/choice"];

const MAX_FILE_LINES: usize = 500;
const MAX_LINE_CHARS: usize = 100;

struct Source {
    /// Relative to the repository, with `/`.
    path: String,
    /// `engine/fake` of `src/engine/fake.rs`, `model/package` of `crates/model/src/package.rs`.
    module: String,
    text: String,
}

impl Source {
    fn new(text: String, path: String) -> Self {
        let module = path.strip_suffix(".rs").unwrap_or(&path);
        let module = module.strip_prefix("src/").or(module.strip_prefix("crates/"));
        let module = module.unwrap_or(&path).replace("/src/", "/");
        Self { path, module, text }
    }

    /// `engine/fake` → `engine`.
    fn top_module(&self) -> &str {
        self.module.split('/').next().unwrap_or_default()
    }

    /// Modules with files of their own that are compiled for tests only.
    fn test_modules(&self) -> impl Iterator<Item = String> {
        let folder = match self.module.strip_suffix("lib") {
            Some(root) if self.path.ends_with("/lib.rs") => root.to_owned(),
            _ => format!("{}/", self.module),
        };
        let lines = self.text.lines().zip(self.text.lines().skip(1));
        let declared = lines.filter(|(first, _)| *first == "#[cfg(test)]");
        let names = declared.filter_map(|(_, second)| {
            second
                .strip_prefix("pub(super) ")
                .unwrap_or(second)
                .strip_prefix("mod ")?
                .strip_suffix(";")
        });
        names.map(move |name| format!("{folder}{name}"))
    }

    /// Lines of code with their numbers; comments are left out, and so are test modules.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

impl Source {
    /// The paths that the code uses of its own crate, from the crate's name on: `http/held/hold`.
    fn used(&self) -> Vec<String> {
        let code: String = self.code().map(|(_, line)| line.trim()).collect();
        let own: Vec<&str> = self.module.split('/').collect();
        let root: Vec<&str> = match self.path.strip_prefix("crates/") {
            Some(_) => vec![own[0]],
            None => Vec::new(),
        };
        let mut used = Vec::new();
        for (at, _) in code.match_indices("super::").chain(code.match_indices("crate::")) {
            // `super::super::` is read from its first word.
            if code[..at].ends_with("super::") {
                continue;
            }
            let (mut base, mut rest) = (own.clone(), &code[at..]);
            if let Some(below) = rest.strip_prefix("crate::") {
                (base, rest) = (root.clone(), below);
            }
            while let Some(above) = rest.strip_prefix("super::") {
                base.pop();
                rest = above;
            }
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let (path, behind) = rest.split_at(end.unwrap_or(rest.len()));
            let group = behind.strip_prefix('{').and_then(|group| group.split_once('}'));
            for name in group.map_or("", |(names, _)| names).split(',') {
                let path = path.split("::").chain(name.trim().split("::"));
                let path = base.iter().copied().chain(path.filter(|part| !part.is_empty()));
                used.push(path.collect::<Vec<_>>().join("/"));
            }
        }
        used
    }
}

fn sources(folder: &str, endings: &[&str]) -> Vec<Source> {
    let paths = files(folder, endings).into_iter();
    let found: Vec<Source> = paths.map(|path| Source::new(text_of(&path), path)).collect();
    assert!(!found.is_empty(), "{folder} has sources");
    found
}

/// The sources of all crates, with their unit tests.
fn crate_sources() -> Vec<Source> {
    let mut all = sources("src", &["rs"]);
    all.extend(sources("crates", &["rs"]).into_iter().filter(|one| one.path.contains("/src/")));
    all
}

/// What the server is made of: files of test modules are left out.
fn rust_sources() -> Vec<Source> {
    let mut all = crate_sources();
    all.retain(|source| source.top_module() != "testing");
    let tests: Vec<String> = all.iter().flat_map(Source::test_modules).collect();
    all.retain(|source| !tests.iter().any(|test| within(&source.module, test)));
    all
}

fn everything() -> Vec<Source> {
    let mut all = sources("src", &["rs"]);
    all.extend(sources("crates", &["rs"]));
    all.extend(sources("tests", &["rs", "py"]));
    all.extend(sources("scripts", &["py", "sh"]));
    all.extend(sources("cpp", &["h", "cc"]));
    all
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Checks that nothing is wrong with any line.
fn assert_lines(problem: impl Fn(&str) -> Option<String>) {
    let mut problems = Vec::new();
    for source in everything() {
        let lines = source.text.lines().enumerate();
        let found = lines.filter_map(|(index, line)| Some((index + 1, problem(line)?)));
        problems.extend(found.map(|(line, told)| format!("{}:{line}: {told}", source.path)));
    }
    assert_none(&problems);
}

/// Whether a path is an entry or lies in its folder.
fn within(path: &str, entry: &str) -> bool {
    path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Every line of code that contains one of `words`, of the modules that are looked at.
fn uses(words: &[&str], is_looked_at: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in rust_sources().iter().filter(|source| is_looked_at(&source.module)) {
        for (number, line) in source.code() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    found
}

/// All modules but these.
fn outside(allowed: &[&str]) -> impl Fn(&str) -> bool {
    move |module| !allowed.contains(&module)
}

/// What files below a folder use of other entries than lower ones; each has its layer.
fn uses_of_higher_layers(layers: &[&[&str]], folder: &str) -> Vec<String> {
    let entry = |path: &str| {
        let path = path.strip_prefix(folder)?;
        let entries = layers.iter().enumerate();
        let entries =
            entries.flat_map(|(layer, names)| names.iter().map(move |name| (layer, *name)));
        entries.filter(|(_, name)| within(path, name)).max_by_key(|(_, name)| name.len())
    };
    let (mut problems, mut uses) = (Vec::new(), 0);
    let sources = rust_sources().into_iter().filter(|source| source.path.starts_with("src/"));
    for source in sources.filter(|source| source.module.starts_with(folder)) {
        let Some((own_layer, own)) = entry(&source.module) else {
            problems.push(format!("{} has no layer in tests/tidy", source.path));
            continue;
        };
        for (layer, used) in source.used().iter().filter_map(|path| entry(path)) {
            uses += 1;
            if layer >= own_layer && used != own && own != "lib" {
                problems.push(format!("{} uses {used}", source.path));
            }
        }
    }
    assert!(uses > 100, "uses are found: {uses}");
    problems
}

#[test]
fn modules_use_lower_layers_only() {
    assert_none(&uses_of_higher_layers(LAYERS, ""));
}

#[test]
fn the_architecture_has_the_layers_that_are_checked() {
    let text = text_of("ARCHITECTURE.md");
    let mut told = vec![BTreeSet::new(); LAYERS.len() - 1];
    for row in table(&text, "| layer |") {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        told[cells[1].parse::<usize>().expect("a number")].extend(in_code(cells[2]));
    }
    let checked = LAYERS[..told.len()].iter().map(|layer| layer.iter().copied().collect());
    assert_eq!(told, checked.collect::<Vec<BTreeSet<&str>>>());
}

#[test]
#[rustfmt::skip]
fn pure_modules_touch_nothing_outside() {
    let words = [
        "std::io", "std::fs", "std::net", "std::thread", "std::env", "std::process", "parking_lot",
        "tokio", "tracing", "Instant", "SystemTime", "Mutex", "RealClock",
    ];
    assert_none(&uses(&words, |module| PURE.iter().any(|pure| within(module, pure))));
}

#[test]
fn unsafe_code_is_only_where_it_is_allowed() {
    let allowed =
        ["engine/tensorrt/ffi", "engine/cuda", "engine/openvino/mapped", "allocator", "shutdown"];
    assert_none(&uses(&["unsafe "], outside(&allowed)));
}

#[test]
fn the_environment_is_read_in_one_place() {
    assert_none(&uses(&["env::var", "env::vars", "env::set_var"], outside(&["settings/raw"])));
}

#[test]
fn time_is_read_in_one_place() {
    assert_none(&uses(&["Instant::now", "SystemTime::now", ".elapsed()"], outside(&["clock/lib"])));
}

/// Nothing is decided by the clock that people set: it may jump. Durations and deadlines are of the
/// monotonic clock; the other one is told to clients and stamps spans, never compared.
#[test]
fn the_clock_on_the_wall_is_only_told() {
    assert_none(&uses(&["SystemTime", "UNIX_EPOCH"], outside(&["clock/lib", "traces"])));
    let mut found = uses(&["unix_seconds("], outside(&["clock/lib"]));
    found.retain(|place| !place.starts_with("src/service.rs:"));
    assert_none(&found);
    let service = rust_sources().into_iter().find(|source| source.module == "service");
    let service = service.expect("it is there");
    let told = service.code().filter(|(_, line)| line.contains("created_unix_s")).count();
    assert_eq!(told, 4, "the field, its value, and the function that hands it to clients");
}

#[test]
fn status_codes_are_chosen_in_one_place() {
    assert_none(&uses(&["StatusCode::"], outside(&["http/error"])));
}

#[test]
fn only_the_http_side_names_actix() {
    // A log target's name in quotes is no use of the crate.
    assert_none(&uses(&["actix_web"], |module| !within(module, "http")));
}

#[test]
fn every_promise_has_its_tests() {
    let all = everything();
    let exists = |name: &str| {
        let (rust, python) = (format!("fn {name}("), format!("def {name}("));
        all.iter().any(|source| source.text.contains(&rust) || source.text.contains(&python))
    };
    let text = text_of("SECURITY.md");
    let promises = table(&text, "| promise |");
    assert!(!promises.is_empty(), "the table is found");
    let mut problems = Vec::new();
    for row in promises {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        if in_code(tests).next().is_none() {
            problems.push(format!("no test: {row}"));
        }
        let missing = in_code(tests).filter(|name| !exists(name));
        problems.extend(missing.map(|name| format!("there is no test {name}")));
    }
    assert_none(&problems);
}

#[test]
fn files_and_lines_are_short() {
    let lines = everything().into_iter().map(|one| (one.text.lines().count(), one.path));
    let long = lines.filter(|(lines, _)| *lines > MAX_FILE_LINES);
    assert_none(&long.map(|(lines, path)| format!("{path}: {lines} lines")).collect::<Vec<_>>());
    assert_lines(|line| (line.chars().count() > MAX_LINE_CHARS).then(|| "too long".to_owned()));
}

#[test]
fn every_source_says_what_it_is_for() {
    let mut problems = Vec::new();
    for source in everything() {
        let mut lines = source.text.lines();
        let first = lines.next().unwrap_or_default();
        let said = match source.path.rsplit('.').next() {
            Some("rs") => first.starts_with("//! "),
            Some("py") => {
                let first = if first.starts_with("#!") { lines.next() } else { Some(first) };
                first.is_some_and(|line| line.starts_with("\"\"\""))
            }
            Some("h") => first.starts_with("// "),
            // What a source is for is said in its header.
            Some("cc") => true,
            _ => first.starts_with('#'),
        };
        if !said {
            problems.push(format!("{}: its first line does not say it", source.path));
        }
    }
    assert_none(&problems);
}

/// A reader who searches for a type finds one, also among the tests. What Rust shares with C++ has
/// the same name on both sides: the names of `ffi.rs`, those of `engine.rs`, and CUDA's.
#[test]
fn every_type_has_a_name_of_its_own() {
    let border = ["src/engine/tensorrt/ffi.rs", "src/engine.rs", "src/engine/cuda.rs"];
    let mut all = crate_sources();
    all.extend(sources("cpp", &["h", "cc"]));
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in all.iter().filter(|source| !border.contains(&source.path.as_str())) {
        for (index, line) in source.text.lines().enumerate() {
            if let Some(name) = defined_type(line) {
                found.entry(name).or_default().push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    let shared = all.iter().filter(|source| border.contains(&source.path.as_str()));
    let shared: BTreeSet<&str> =
        shared.flat_map(|source| source.text.lines().filter_map(defined_type)).collect();
    // A class of the bridge stands for one of the same name behind it.
    let is_mirror = |name: &str, places: &[String]| {
        let tests = places.iter().any(|place| place.starts_with("cpp/testing/"));
        shared.contains(name) && !tests && places.iter().all(|place| place.starts_with("cpp/"))
    };
    let mut problems = Vec::new();
    for (name, places) in found {
        let own = places.len() == 1 && !shared.contains(name);
        if !own && !is_mirror(name, &places) {
            problems.push(format!("{name} is defined in {}", places.join(" and ")));
        }
    }
    assert_none(&problems);
}

/// `pub(crate) struct Plan<'a> {` → `Plan`, and so in C++. An alias counts where it is not
/// indented: others belong to an `impl` or to a class.
fn defined_type(line: &str) -> Option<&str> {
    let declared = line.trim_start();
    let declared = match declared.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|end| end != ' ').trim_start(),
        None => declared,
    };
    let words = ["struct ", "enum class ", "enum ", "trait ", "union ", "class "];
    let rest = match declared.strip_prefix("type ").or_else(|| declared.strip_prefix("using ")) {
        // A range of numbers is not a type of its own.
        Some(rest) if rest.contains(" = Bounded<") => None,
        Some(rest) if !line.starts_with(' ') && rest.contains(" = ") => Some(rest),
        _ => words.iter().find_map(|word| declared.strip_prefix(word)),
    };
    // What is only declared has its definition elsewhere; a specialization is not a new type.
    let rest = rest.filter(|rest| !line.ends_with(';') || rest.contains([' ', '(', '{']))?;
    let name = rest.split(|end: char| !end.is_alphanumeric() && end != '_').next()?;
    // A macro's parameter is not a name, and a member of another class is behind its `::`.
    (!name.is_empty() && !rest[name.len()..].starts_with("::")).then_some(name)
}

#[test]
fn names_say_something() {
    let nothing = ["mod", "utils", "util", "common", "helpers", "types", "manager"];
    let mut paths: Vec<String> = everything().into_iter().map(|source| source.path).collect();
    paths.retain(|path| {
        let name = path.rsplit('/').next().and_then(|name| name.split('.').next());
        name.is_some_and(|name| nothing.contains(&name))
    });
    assert_none(&paths);
}

#[test]
fn nothing_is_left_unfinished_or_ignored() {
    // Put together here so that this file does not contain the words itself.
    let words = ["TO_DO", "FIX_ME", "XX_X", "#[ign_ore"].map(|word| word.replace('_', ""));
    assert_lines(|line| words.iter().find(|word| line.contains(word.as_str())).cloned());
}
