//! `duovec check --config` says what would be run with, and where it comes from.

use std::fs;

use super::support::*;

fn said(ended: &Ended, line: &str) -> bool {
    ended.stdout.lines().any(|printed| printed == line)
}

#[test]
fn every_value_but_secrets_is_printed_with_its_origin() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("duovec.toml");
    fs::write(&file, "port = 7\nmax_items = 9\nmodel_aliases = [\"a\", \"b \\\"c\"]\n")
        .expect("it is written");
    let ended = run(duovec()
        .args(["check", "--queue-capacity", "30", "--config"])
        .arg(&file)
        .env("DUOVEC_PORT", "8")
        .env("DUOVEC_API_KEYS", "kept-1,kept-2"));
    ended.with_code(0);
    let place = file.display();
    for line in [
        "port = 8 # environment DUOVEC_PORT".to_owned(),
        format!("max_items = 9 # file {place}"),
        "queue_capacity = 30 # flag --queue-capacity".to_owned(),
        "host = \"127.0.0.1\" # default".to_owned(),
        "workers = \"auto\" # default".to_owned(),
        "# api_keys is set and not shown (environment DUOVEC_API_KEYS)".to_owned(),
    ] {
        assert!(said(&ended, &line), "{line}\n{}", ended.stdout);
    }
    assert!(!ended.stdout.contains("kept-"), "{}", ended.stdout);
    let threads = ended.stdout.lines().find(|line| line.starts_with("http_threads"));
    let threads = threads.expect("it is printed");
    assert!(threads.starts_with("http_threads = \"auto\" # default; "), "{threads}");
}

#[test]
fn the_output_is_a_configuration_file_of_the_same_settings() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("duovec.toml");
    let aliases = ("DUOVEC_MODEL_ALIASES", "a,b \"c\\");
    let first = run(duovec().args(["check", "--config"]).env(aliases.0, aliases.1));
    assert!(said(&first, "# api_keys is not set (default)"), "{}", first.stdout);
    fs::write(&file, &first.stdout).expect("it is written");
    let second = run(duovec().args(["check", "--config"]).arg(&file));
    second.with_code(0);
    let values = |ended: &Ended| {
        let lines = ended.stdout.lines();
        lines.map(|line| line.rsplit_once(" # ").map(|(value, _)| value.to_owned())).collect()
    };
    let (first, second): (Vec<_>, Vec<_>) = (values(&first), values(&second));
    assert_eq!(first, second);
    assert!(first.len() > 30);
}

/// As with `| head`.
#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let package = tiny();
    let package = package.to_str().expect("it is UTF-8");
    let commands = [
        &["check", "--config"][..],
        &["check", "--engine", "fake", "--log-level", "error", package],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = duovec().args(arguments).stdout(writer).output().expect("the binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{arguments:?}");
    }
}

/// With a variable of the shell that is not set, nothing else would say that the server is open.
#[test]
fn a_key_setting_that_is_given_and_empty_is_a_usage_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("duovec.toml");
    let serve = |flags: &[&str], variable: (&str, &str), text: &str| {
        fs::write(&file, text).expect("it is written");
        // Settings are looked at first: a server never starts here.
        let mut command = duovec();
        command.args(["serve", "--package", "/nowhere", "--config"]).arg(&file).args(flags);
        run(command.env(variable.0, variable.1))
    };
    let keys = "DUOVEC_API_KEYS";
    let cases = [
        ("--api-key", serve(&["--api-key", ""], (keys, "secret"), "api_keys = [\"secret\"]")),
        ("--api-key", serve(&["--api-key", "secret", "--api-key", " "], (keys, "secret"), "")),
        (keys, serve(&[], (keys, ""), "api_keys = [\"secret\"]")),
        (keys, serve(&[], (keys, " , "), "")),
        ("api_keys", serve(&[], ("A", ""), "api_keys = []")),
        ("api_keys", serve(&[], ("A", ""), "api_keys = [\"secret\", \"\"]")),
        ("--api-key-file", serve(&["--api-key-file", ""], ("A", ""), "")),
        ("DUOVEC_API_KEY_FILE", serve(&[], ("DUOVEC_API_KEY_FILE", ""), "")),
        ("api_key_file", serve(&[], ("A", ""), "api_key_file = \"\"")),
        ("--tls-cert", serve(&["--tls-cert", "", "--tls-key", ""], ("A", ""), "")),
        ("--unix-socket", serve(&["--unix-socket", ""], ("A", ""), "")),
        ("DUOVEC_UNIX_SOCKET", serve(&[], ("DUOVEC_UNIX_SOCKET", ""), "")),
        ("DUOVEC_CONFIG", run(duovec().args(["serve"]).env("DUOVEC_CONFIG", ""))),
    ];
    for (index, (place, ended)) in cases.iter().enumerate() {
        let stderr = &ended.stderr;
        assert_eq!(ended.code, Some(2), "case {index}, {place}: {stderr}");
        assert!(stderr.contains(&format!("{place}: ")), "case {index}, {place}: {stderr}");
        assert!(stderr.contains("empty; give") && !stderr.contains("secret"), "{stderr}");
    }
}
