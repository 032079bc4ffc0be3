//! `duovec plan-capacity`: from what a server measured to a number of servers, and what is wrong
//! with its input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::lifecycle::ready;
use super::support::{Ended, assert_says, client, duovec, run, tiny};

/// What `duovec bench --json` prints of an engine that takes 10 ms for each text.
fn bench(folder: &TempDir) -> PathBuf {
    let shape = |length: usize| json!({"rows": 1, "length": length, "median_ms": 10.0});
    let path = folder.path().join("bench.json");
    fs::write(&path, json!({"engine": "fake", "shapes": [shape(8), shape(64)]}).to_string())
        .expect("written");
    path
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn command(server: &Path, arguments: &[&str]) -> Command {
    let mut command = duovec();
    command.args(["plan-capacity", "--workers", "1", "--max-batch-tokens", "8"]);
    command.arg("--server").arg(server).args(arguments);
    command
}

fn planned(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("it prints JSON")
}

const RATE: [&str; 5] = ["--requests-per-s", "250", "--tokens", "20", "--json"];

#[test]
fn a_rate_and_a_goal_give_a_number_of_servers() {
    let folder = folder();
    let goal = ["--goal-p99-ms", "40"];
    let arguments = [&RATE[..], &goal].concat();
    let first = run(&mut command(&bench(&folder), &arguments));
    let plan = planned(&first);
    assert!((3..=5).contains(&plan["servers"].as_u64().expect("a number")), "{plan}");
    assert_eq!(plan["steady"]["goal_met"], true);
    assert_eq!(plan["alone"]["p99_ms"], 10.0);
    let p99 = plan["steady"]["p99_ms"].as_f64().expect("there are answers");
    assert!((10.0..=40.0).contains(&p99), "{plan}");
    // With one of so few servers less, or twice the load, more is asked than all can do.
    assert_eq!(plan["load_doubles"]["goal_met"], false);
    assert!(plan["load_doubles"]["busy"].as_f64() > Some(0.99), "{plan}");

    let again = run(&mut command(&bench(&folder), &arguments));
    assert_eq!(again.stdout, first.stdout, "the same seed gives the same figures");
    let other = run(&mut command(&bench(&folder), &[&arguments[..], &["--seed", "2"]].concat()));
    assert_ne!(other.stdout, first.stdout);
}

#[test]
fn the_table_tells_the_same_in_words() {
    let folder = folder();
    let asked = ["--texts-per-s", "500", "--texts", "2", "--tokens", "20", "--servers", "8"];
    let ended = run(&mut command(&bench(&folder), &asked));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let said = &ended.stdout;
    assert!(said.starts_with("8 servers for 250 requests/s (500 texts/s)\n"), "{said}");
    for row in ["alone on a server", "as planned", "one server fails", "the load doubles"] {
        assert!(said.lines().any(|line| line.starts_with(row)), "{said}");
    }
}

#[test]
fn a_trace_is_simulated_as_it_was() {
    let folder = folder();
    let trace = folder.path().join("trace.jsonl");
    let lines = [
        json!({"time": 100.0, "tokens": [20, 20]}),
        json!({"time": 101.0, "tokens": 20}),
        json!({"time": 102.0, "texts": 3}),
    ];
    fs::write(&trace, lines.map(|line| format!("{line}\n")).concat()).expect("written");
    let path = trace.to_str().expect("UTF-8");
    let asked = ["--trace", path, "--tokens", "9", "--servers", "1", "--json"];
    let plan = planned(&run(&mut command(&bench(&folder), &asked)));
    // One text after another, of 10 ms each.
    assert_eq!(plan["steady"]["requests"], 3);
    assert_eq!(plan["steady"]["p50_ms"], 20.0);
    assert_eq!(plan["steady"]["p99_ms"], 30.0);
    assert_eq!(plan["requests_per_s"], 1.0);
}

#[test]
fn what_bench_prints_is_understood() {
    let folder = folder();
    let mut measure = duovec();
    measure.args(["bench", "--engine", "fake", "--fake-run-ms", "10", "--max-batch-tokens", "8"]);
    measure.args(["--shapes", "1x8,1x64", "--ms-per-shape", "100", "--json"]).arg(tiny());
    measure.args(["--log-level", "error"]);
    let measured = run(&mut measure);
    assert_eq!(measured.code, Some(0), "{}", measured.stderr);
    let path = folder.path().join("measured.json");
    fs::write(&path, measured.stdout).expect("written");
    let plan = planned(&run(&mut command(&path, &[&RATE[..], &["--servers", "4"]].concat())));
    let fixed_us = plan["server"]["lanes"][0]["fixed_us"].as_f64().expect("a number");
    assert!(fixed_us >= 9_000.0, "{plan}");
}

#[tokio::test]
async fn what_health_answers_is_understood() {
    let server = ready(&["--engine", "fake", "--workers", "3"]);
    let answer = client().get(server.url("/health")).send().await.expect("an answer");
    let health = answer.text().await.expect("UTF-8");
    let folder = folder();
    let path = folder.path().join("health.json");
    fs::write(&path, health).expect("written");
    let mut plan = duovec();
    plan.args(["plan-capacity", "--server"]).arg(&path).args(RATE).args(["--servers", "1"]);
    let plan = planned(&run(&mut plan));
    assert_eq!(plan["server"]["workers"], 3);
    assert_eq!(plan["steady"]["in_time"], 1.0);
}

#[test]
fn a_goal_that_no_number_of_servers_meets_is_one_sentence() {
    let folder = folder();
    for (goal, words) in [
        (
            ["--goal-p99-ms", "9"],
            ["no number of servers", "99 % of these requests take up to 10.0"],
        ),
        (
            ["--goal-p50-ms", "9"],
            ["no number of servers", "half of these requests take up to 10.0"],
        ),
        (["--request-timeout-ms", "9"], ["no number of servers", "only 0.0000"]),
    ] {
        let ended = run(&mut command(&bench(&folder), &[&RATE[..], &goal].concat()));
        assert_says(&ended, 1, &words);
    }
}

#[test]
fn bad_files_are_named_with_what_to_do() {
    let folder = folder();
    let trace = folder.path().join("trace.jsonl");
    fs::write(&trace, "{\"time\": 0, \"tokens\": 5}\n{\"time\": 1}\n").expect("written");
    let path = trace.to_str().expect("UTF-8");
    let ended = run(&mut command(&bench(&folder), &["--trace", path]));
    assert_says(&ended, 1, &["trace.jsonl:2: give `tokens` or `texts`"]);
    let ended = run(&mut command(&bench(&folder), &["--trace", "/nonexistent"]));
    assert_says(&ended, 1, &["cannot read /nonexistent"]);
    let ended = run(&mut command(Path::new("/nonexistent"), &RATE));
    assert_says(&ended, 1, &["cannot read /nonexistent"]);
    let ended = run(&mut command(&trace, &RATE));
    assert_says(&ended, 1, &["trace.jsonl is not JSON", "GET /health", "duovec bench --json"]);
    let many = [&RATE[..], &["--texts", "5000"]].concat();
    assert_says(
        &run(&mut command(&bench(&folder), &many)),
        1,
        &["--texts 5000", "--max-items 2048"],
    );
}

#[test]
fn a_wrong_command_line_says_which_flag() {
    let folder = folder();
    for (arguments, words) in [
        (&["--tokens", "20"][..], "--requests-per-s"),
        (&["--requests-per-s", "250"], "--tokens"),
        (&["--requests-per-s", "0", "--tokens", "20"], "a number above zero"),
        (&["--requests-per-s", "9", "--tokens", "20:x"], "12:5,43:3,200:1"),
        (&["--requests-per-s", "9", "--tokens", "20", "--goal-in-time", "2"], "0.999"),
        (&["--requests-per-s", "9", "--tokens", "20", "--servers", "0"], "--servers"),
        (&["--requests-per-s", "9", "--texts-per-s", "9", "--tokens", "20"], "--texts-per-s"),
        (&["--requests-per-s", "9", "--tokens", "20", "--spread", "even"], "least-queue"),
    ] {
        let ended = run(&mut command(&bench(&folder), arguments));
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn bench_compares_what_a_gpu_has_on_a_gpu_only() {
    for name in ["graphs", "memory", "priorities", "waits"] {
        let flag = format!("--compare-{name}");
        let mut command = duovec();
        command.args(["bench", "--engine", "fake", "--log-level", "off", &flag]).arg(tiny());
        let ended = run(&mut command);
        assert_says(&ended, 1, &[&format!("{flag} needs TensorRT on a GPU")]);
        assert_eq!(ended.stdout, "", "nothing is measured before");
    }
}
