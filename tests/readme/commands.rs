//! Commands, flags and files that the documents name are there.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use testing::{files, text_of};

use super::{Document, documents, is_there};

/// Commands of `duovec` that take flags.
const COMMANDS: [&str; 7] = ["adopt", "serve", "check", "bench", "embed", "batch", "build-engine"];
/// Flags of programs that are not ours.
const FOREIGN_FLAGS: [&str; 5] = ["--all-targets", "--help", "--lib", "--nocapture", "--test"];
/// Folders of which the documents name files.
const FOLDERS: [&str; 8] =
    ["clients/", "cpp/", "crates/", "deploy/", "docs/", "examples/", "scripts/", "tests/"];

/// Documents that say what is so now; the others tell what was.
fn current() -> impl Iterator<Item = Document> {
    let past = |document: &Document| {
        document.name == "CHANGELOG.md" || document.name.starts_with("docs/decisions/0")
    };
    documents().into_iter().filter(move |document| !past(document))
}

#[test]
fn every_command_that_a_document_shows_can_be_typed() {
    let mut problems = Vec::new();
    let mut commands = 0;
    for document in current() {
        for command in document.commands() {
            commands += 1;
            if let Err(problem) = check(&command.words) {
                problems.push(format!("{}: {}: {problem}", document.name, command.words.join(" ")));
            }
        }
    }
    assert!(commands > 20, "the commands are found");
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_flag_and_file_that_a_document_names_is_there() {
    let mut known: BTreeSet<String> = COMMANDS.iter().flat_map(|command| flags(command)).collect();
    known.extend(FOREIGN_FLAGS.map(str::to_owned));
    for folder in ["scripts", "clients"] {
        let scripts = files(folder, &["py", "sh"]);
        known.extend(scripts.iter().flat_map(|path| flags_in(&text_of(path))));
    }
    let mut problems = Vec::new();
    for document in current() {
        for word in document.code_words() {
            let name = word.split(['=', ':']).next().unwrap_or_default();
            let flag = name.starts_with("--") && name.len() > 2;
            let file = FOLDERS.iter().any(|folder| name.starts_with(folder));
            let missing = flag && !known.contains(name) || file && !is_there(name);
            if missing {
                problems.push(format!("{}: {word}", document.name));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Checks the words of one command line.
fn check(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // What `tests/readme/examples.rs` runs.
    let [program, arguments @ ..] = words.as_slice() else { return Ok(()) };
    match (*program, arguments) {
        ("curl" | "tar", _) => Ok(()),
        ("duovec", [command, arguments @ ..]) => takes(&flags(command), arguments),
        ("cargo", arguments) => cargo(arguments),
        ("pip" | "python", arguments) => {
            let mut paths = arguments.iter().filter(|word| word.contains('/'));
            paths.try_for_each(|path| exists(path))
        }
        (script, arguments) if script.contains('/') => {
            exists(script)?;
            takes(&flags_of_script(script), arguments)
        }
        _ => Err("the test does not know this program".to_owned()),
    }
}

fn exists(path: &str) -> Result<(), String> {
    if is_there(path) { Ok(()) } else { Err(format!("{path} is not there")) }
}

/// Checks that every flag of `arguments` is known.
fn takes(known: &BTreeSet<String>, arguments: &[&str]) -> Result<(), String> {
    let flags = arguments.iter().take_while(|word| **word != "--");
    let mut flags = flags.filter(|word| word.starts_with("--"));
    match flags.find(|flag| !known.contains(**flag)) {
        Some(flag) => Err(format!("it does not take {flag}")),
        None => Ok(()),
    }
}

/// Checks `cargo test`: the file of tests is there, and something has the name.
fn cargo(arguments: &[&str]) -> Result<(), String> {
    let typed = arguments.iter().take_while(|word| **word != "--");
    let typed: Vec<&str> = typed.copied().collect();
    let (sources, name) = match typed.as_slice() {
        ["test", "--lib", name] => (files("src", &["rs"]), Some(*name)),
        ["test", "--test", target, name @ ..] => {
            let mut sources = files("tests", &["rs"]);
            let begins = [format!("tests/{target}/"), format!("tests/{target}.rs")];
            sources.retain(|path| begins.iter().any(|begin| path.starts_with(begin)));
            (sources, name.first().copied())
        }
        ["test", "-p", package, name @ ..] => {
            let folder = package.strip_prefix("duovec-").unwrap_or(package);
            (files(&format!("crates/{folder}"), &["rs"]), name.last().copied())
        }
        _ => return Err("the test does not know this form".to_owned()),
    };
    let has = |name: &str| {
        let path = name.replace("::", "/");
        sources.iter().any(|source| source.contains(&path) || text_of(source).contains(name))
    };
    if sources.is_empty() || !name.is_none_or(has) {
        return Err("there is no such test".to_owned());
    }
    Ok(())
}

/// Flags of a command of `duovec`, as its help has them.
fn flags(command: &str) -> BTreeSet<String> {
    // `check --config` takes the flags of `serve`, which its own help does not repeat.
    let commands = if command == "check" { &["check", "serve"][..] } else { &[command] };
    let of = |command: &&str| {
        let output = Command::new(env!("CARGO_BIN_EXE_duovec")).args([command, "--help"]).output();
        let output = output.expect("the binary starts");
        assert!(output.status.success(), "duovec {command} --help");
        flags_in(&String::from_utf8_lossy(&output.stdout))
    };
    commands.iter().flat_map(of).collect()
}

/// Flags of a script, as its help has them, and those of the command of `duovec` that gets its
/// arguments.
fn flags_of_script(script: &str) -> BTreeSet<String> {
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .arg("--help")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{script} --help");
    let help = String::from_utf8_lossy(&output.stdout);
    let hands_over = |command: &&str| help.contains(&format!("duovec {command}"));
    let commands = COMMANDS.into_iter().filter(hands_over);
    commands.flat_map(flags).chain(flags_in(&help)).collect()
}

/// Every `--word` of a text.
fn flags_in(text: &str) -> BTreeSet<String> {
    let ends = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    let words = text.split(ends).filter(|word| word.starts_with("--") && word.len() > 2);
    words.map(str::to_owned).collect()
}
