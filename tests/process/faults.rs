//! What goes wrong around the server: batches that do not end, logs that cannot be written, too
//! many connections, bodies that are made to fill the memory.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::StatusCode;

use super::support::*;

/// Of a server whose batches never end, and which ends with them.
const HANGS: [&str; 6] =
    ["--fake-run-ms", "60000", "--worker-stuck-ms", "200", "--exit-on-stuck", "true"];

/// The answer to a short text.
async fn ask(server: &Server) -> (u16, Value) {
    server.ask("/v1/embeddings", Some(&json!({"input": "a"}))).await
}

#[tokio::test]
async fn a_batch_that_hangs_is_answered_and_fails_readiness_until_it_ends() {
    let server = ready_fake(&["--fake-run-ms", "6000", "--worker-stuck-ms", "200"]);
    let begin = Instant::now();
    // The second is told at once, instead of waiting for a worker that may never come back.
    for _ in 0..2 {
        let (status, body) = ask(&server).await;
        assert_eq!((status, &body["error"]["code"]), (503, &json!("no_worker")));
    }
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    let (status, body) = server.ask("/health", None).await;
    assert_eq!((status, &body["status"]), (503, &json!("failed")));
    assert_eq!(body["failure"], "stuck workers: 1");
    server.wait_until("/health", |health| health.contains("\"ok\"")).await;
}

#[tokio::test]
async fn a_batch_that_hangs_ends_the_process_when_told_to() {
    let server = ready_fake(&HANGS);
    let begin = Instant::now();
    assert_eq!(ask(&server).await.0, 503);
    assert_eq!(server.wait().code(), Some(1));
    assert!(begin.elapsed() < Duration::from_secs(50), "{:?}", begin.elapsed());
}

/// A collector that never answers holds up the end, and is no client that was cut.
#[tokio::test]
async fn traces_of_the_requests_before_a_fault_are_waited_for() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", collector.local_addr().expect("it is bound"));
    let mut server = ready_fake(&[&HANGS[..], &["--otlp-endpoint", &endpoint]].concat());
    assert_eq!(ask(&server).await.0, 503);
    let log = server.rest();
    assert!(log.contains("duovec::traces"), "it says that they are lost: {log}");
    assert!(!log.contains("connections were cut"), "{log}");
}

/// A supervisor's stop may meet a process that ends already.
#[tokio::test]
async fn a_signal_behind_a_fault_does_not_hide_it() {
    let mut server = ready_fake(&HANGS);
    // The end waits for a body that never comes.
    let _half = server.half_a_request();
    assert_eq!(ask(&server).await.0, 503);
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.signal("TERM");
    let log = server.rest();
    assert!(log.contains("duovec: the model cannot be run any more"), "{log}");
    assert_eq!(server.wait().code(), Some(1));
}

/// As `docker pause` and a machine that stalls do: what did not run cannot be stuck.
#[tokio::test]
async fn a_process_that_was_paused_takes_no_worker_for_stuck() {
    let more = ["--fake-run-ms", "4000", "--worker-stuck-ms", "2000", "--exit-on-stuck", "true"];
    let server = ready_fake(&more);
    let asked = server.begin("a");
    server.wait_for_busy().await;
    server.signal("STOP");
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.signal("CONT");
    let answer = asked.await.expect("it did not panic").expect("the process lives");
    assert_eq!(answer.status(), StatusCode::OK);
}

/// A log may be so long where it is a file, in blocks of 512 bytes.
const LOG_BLOCKS: u64 = 8;

/// A server whose log nobody can read, so that it cannot say its port: a client of its socket, and
/// its process, which is ended with this.
struct Mute(Child);

impl Mute {
    async fn start(stderr: Stdio, socket: &Path) -> (Self, reqwest::Client) {
        let mut command = limited(&format!("-f {LOG_BLOCKS}"));
        command.args(["serve", "--engine", "fake", "--port", "0", "--log-level", "trace"]);
        command.args(["--drain-delay-ms", "0", "--unix-socket"]).arg(socket);
        let command = command.arg("--package").arg(tiny()).stderr(stderr);
        let mut server = Self(command.spawn().expect("the binary starts"));
        // Nobody reads it: the next line that is written fails.
        drop(server.0.stderr.take());
        let client = reqwest::Client::builder().unix_socket(socket).build().expect("a client");
        let is_ready = async || {
            let health = client.get(format!("{URL}/health")).send().await;
            health.is_ok_and(|answer| answer.status().is_success())
        };
        eventually(PATIENCE, "it is ready", is_ready).await;
        (server, client)
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        // Already gone when the test went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Through a socket the name of the host leads nowhere.
const URL: &str = "http://duovec";

#[tokio::test]
async fn a_log_that_cannot_be_written_neither_ends_nor_blocks_the_server() {
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let long = File::create(&log).expect("the folder is ours");
    for stderr in [Stdio::from(full), Stdio::piped(), Stdio::from(long)] {
        let (mut server, client) = Mute::start(stderr, &folder.path().join("socket")).await;
        for _ in 0..20 {
            let text = client.post(format!("{URL}/v1/embeddings")).json(&json!({"input": "a"}));
            assert_eq!(text.send().await.expect("an answer").status(), StatusCode::OK);
        }
        let pid = server.0.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(sent.expect("kill is there").success());
        assert_eq!(server.0.wait().expect("it ends").code(), Some(0));
    }
    assert_eq!(fs::metadata(log).expect("it is there").len(), LOG_BLOCKS * 512);
}

/// A server with one HTTP thread that may have so many files open.
fn ready_within(limit: &str) -> Server {
    let mut command = limited(limit);
    command.args(["serve", "--engine", "fake", "--http-threads", "1", "--package"]);
    Server::ready(command.arg(tiny()))
}

#[tokio::test]
async fn idle_connections_by_the_thousand_hold_nobody_up() {
    let open_max = usize::try_from(duovec::descriptors::raise_limit().unwrap_or(20_000));
    let connections = open_max.expect("64 bits").saturating_sub(1000).min(10_000);
    assert!(connections >= 2000, "the limit of open files is too low for this test");
    // The server's own soft limit is far below; it raises it.
    let server = ready_within("-Sn 256");
    let before = memory_kib(server.pid(), "VmRSS:");
    let mut idle = Vec::with_capacity(connections);
    while idle.len() < connections {
        let more = (0..100).map(|_| TcpStream::connect(server.address).expect("it is accepted"));
        idle.extend(more);
        // Answered behind those: the kernel's queue of connections never overflows.
        assert_eq!(ask(&server).await.0, 200);
    }
    let begin = Instant::now();
    for _ in 0..20 {
        assert_eq!(ask(&server).await.0, 200);
    }
    let (took, kib) = (begin.elapsed(), memory_kib(server.pid(), "VmRSS:") - before);
    println!("20 requests beside {} idle connections: {took:?}; {kib} KiB for them", idle.len());
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it lives").count();
    assert!(open > connections, "{open} files are open: the connections were accepted");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[tokio::test]
async fn a_refused_body_is_in_memory_twice_at_most() {
    let server = ready_fake(&[]);
    let pid = server.pid();
    // A byte that messages for people write as six.
    let long = "\u{7f}".repeat(16 * 1024 * 1024);
    for (body, code) in [
        (format!("\"{long}\""), "invalid_json"),
        (format!("{{\"input\":[1,\"{long}\"]}}"), "item_too_large"),
        (format!("{{\"encoding_format\":\"{long}\"}}"), "invalid_value"),
        (format!("{{\"dimensions\":\"{long}\"}}"), "invalid_dimensions"),
        (format!("{{\"model\":\"{long}\"}}"), "invalid_input"),
        (format!("{{\"{long}\":1,\"truncate\":1}}"), "invalid_value"),
    ] {
        let body_kib = body.len() as i64 / 1024;
        // Makes the highest value so far the present one.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("it is our process");
        let before = memory_kib(pid, "VmRSS:");
        let answer = client().post(server.url("/v1/embeddings")).body(body).send().await;
        let answer: Value = answer.expect("an answer").json().await.expect("JSON");
        assert_eq!(answer["error"]["code"], code);
        let more = memory_kib(pid, "VmHWM:") - before;
        assert!(more < 5 * body_kib / 2, "{code}: {more} KiB for a body of {body_kib} KiB");
    }
}

/// A body of `items` texts of 16 kB, each of which begins with `escape`, for a model.
fn large_body(items: usize, escape: &str, model: &str) -> String {
    let text = format!("\"{escape}{}\"", "a b ".repeat(4000));
    format!("{{\"input\":[{}],\"model\":{model}}}", vec![text; items].join(","))
}

/// How much the memory of a server grows while it answers `clients` at once. What is freed goes
/// back to the system at once: only what is held counts.
async fn growth_kib(body: &str, clients: usize, expected: StatusCode) -> i64 {
    let mut command = duovec();
    command.env("MIMALLOC_PURGE_DELAY", "0").args(["serve", "--engine", "fake", "--package"]);
    let server = Server::ready(command.arg(tiny()));
    let pid = server.pid();
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("it is our process");
    let before = memory_kib(pid, "VmRSS:");
    // Other tests may take the processor meanwhile.
    let post = || client().post(server.url("/v1/embeddings")).timeout(Duration::from_secs(300));
    let patient = || post().header("x-request-timeout-ms", "300000");
    let ask = |_| patient().body(body.to_owned()).send();
    for answer in join_all((0..clients).map(ask)).await {
        assert_eq!(answer.expect("an answer").status(), expected);
    }
    memory_kib(pid, "VmHWM:") - before
}

#[tokio::test]
async fn texts_take_no_memory_beside_their_body_but_for_those_with_escapes() {
    for (escape, halves) in [("", 3), ("\\n", 5)] {
        // Refused as soon as it is parsed.
        let body = large_body(2048, escape, "\"another\"");
        let more = growth_kib(&body, 1, StatusCode::NOT_FOUND).await;
        let body_kib = body.len() as i64 / 1024;
        // Two huge pages belong to threads that came meanwhile.
        let most = halves * body_kib / 2 + 4 * 1024;
        assert!(more < most, "{escape}: {more} KiB for a body of {body_kib} KiB");
    }
}

#[tokio::test]
async fn large_bodies_at_once_are_in_memory_about_twice() {
    for escape in ["", "\\n"] {
        let body = large_body(512, escape, "null");
        let more = growth_kib(&body, 4, StatusCode::OK).await;
        let bodies_kib = 4 * body.len() as i64 / 1024;
        // Answers take some, too: 50 and 60 MB for 32 of bodies.
        assert!(
            more < 2 * bodies_kib + 16 * 1024,
            "{escape}: {more} KiB for bodies of {bodies_kib} KiB"
        );
    }
}

/// They stay whole while one byte of them is in use.
#[test]
fn a_ready_server_takes_no_more_huge_pages() {
    let server = ready_fake(&[]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it lives");
    assert!(status.contains("THP_enabled:\t0"), "{status}");
}

pub(crate) fn memory_kib(pid: u32, field: &str) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find(|line| line.starts_with(field)).expect("Linux tells it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Time of a process on processors, in hundredths of a second.
fn processor_time(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    // User and system time; the first field behind the name is the third of all.
    fields[12].parse::<u64>().expect("ticks") + fields[13].parse::<u64>().expect("ticks")
}

#[tokio::test]
async fn a_server_out_of_descriptors_serves_who_is_there_and_recovers() {
    let server = ready_within("-n 64");
    let early = client();
    let ask_early = async || {
        let request = server.text("a").build().expect("a request");
        early.execute(request).await.expect("an answer").status()
    };
    assert_eq!(ask_early().await, StatusCode::OK);
    let flood: Vec<TcpStream> = (0..200)
        .map_while(|_| TcpStream::connect_timeout(&server.address, Duration::from_secs(1)).ok())
        .collect();
    assert!(flood.len() > 64, "the kernel takes what the server cannot: {}", flood.len());
    let before = processor_time(server.pid());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let spent = processor_time(server.pid()) - before;
    assert!(spent < 50, "{spent} of 100 ticks: it spins on accept");
    // Whoever has a connection is served.
    assert_eq!(ask_early().await, StatusCode::OK);
    drop(flood);
    assert_eq!(ask(&server).await.0, 200);
}
