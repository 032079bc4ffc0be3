//! What the log says of a request, and what it must not.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::{LazyLock, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use settings::HttpConfig;
use settings::secret::ApiKey;

use crate::collector::Collector;
use crate::support::{DENSE, PATIENCE, Server, Trouble};

static LOG: LazyLock<Mutex<Vec<u8>>> = LazyLock::new(Mutex::default);

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Every test of this file shares the log with all others; ids tell its own lines.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(|| Sink)
            .init();
    });
}

/// The lines that name this request.
pub(crate) fn lines(request_id: &str) -> Vec<Value> {
    let log = LOG.lock().expect("no writer panics").clone();
    let log = String::from_utf8(log).expect("the log is UTF-8");
    log.lines()
        .filter(|line| line.contains(request_id))
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect()
}

#[test]
fn a_request_is_one_debug_line_without_what_was_sent() {
    listen();
    let api_keys = vec![ApiKey::new("key-kept-secret")];
    let server = Server::with(HttpConfig { api_keys, ..HttpConfig::default() });
    let headers = [("x-request-id", "log-1"), ("authorization", "Bearer key-kept-secret")];
    server.post_with(DENSE, &headers, r#"{"input":["words-kept secret","two"]}"#).ok();
    let lines = lines("log-1");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["level"], "DEBUG");
    let fields = &lines[0]["fields"];
    assert_eq!(fields["request_id"], "log-1");
    assert_eq!(fields["route"], DENSE);
    assert_eq!(fields["status"], 200);
    assert_eq!(fields["items"], 2);
    assert_eq!(fields["tokens"], 7);
    assert!(fields["ms"].as_f64() > Some(0.0));
    let log = String::from_utf8(LOG.lock().expect("no writer panics").clone()).expect("UTF-8");
    assert!(!log.contains("kept"), "what was sent is in the log");
}

#[test]
fn a_fault_is_one_error_line_with_its_cause_and_its_answer() {
    listen();
    let server = Server::ready();
    server.prepare(Trouble::Engine);
    let answer = server.post_with(DENSE, &[("x-request-id", "log-2")], r#"{"input":"text"}"#);
    assert_eq!(answer.status, 500);
    let lines = lines("log-2");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["level"], "ERROR");
    let fields = &lines[0]["fields"];
    assert!(fields["cause"].as_str().is_some_and(|cause| cause.contains("Secret")));
    assert_eq!(fields["status"], 500);
    assert!(fields["ms"].as_f64() > Some(0.0));
}

#[test]
fn a_probe_that_says_no_is_not_notable() {
    listen();
    let server = Server::loading(HttpConfig::default());
    let headers = [("x-request-id", "log-3")];
    let answer = server.send(reqwest::Method::GET, "/health", &headers, Vec::new());
    assert_eq!(answer.status, 503);
    let lines = lines("log-3");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["level"], "DEBUG");
}

#[test]
fn a_client_that_left_is_in_the_log() {
    listen();
    let server = Server::ready();
    server.hold();
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\nx-request-id: log-4\r\n");
    let request = format!("{head}content-length: 16\r\n\r\n{{\"input\":\"text\"}}");
    stream.write_all(request.as_bytes()).expect("it is open");
    server.wait_waiting(1);
    drop(stream);
    server.wait_waiting(0);
    // The line is written right after the request is dropped, by the server's thread.
    let written = (0..100_000).any(|_| {
        thread::yield_now();
        !lines("log-4").is_empty()
    });
    assert!(written, "the log does not say that the client left");
    let lines = lines("log-4");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0]["fields"]["message"].as_str().is_some_and(|text| text.contains("left")));
}

#[test]
fn bytes_that_are_no_request_write_no_line_above_debug() {
    listen();
    let server = Server::ready();
    let chunked = "host: x\r\ntransfer-encoding: chunked\r\n\r\n";
    for bytes in [
        "\u{16}\u{3}\u{1}hello\r\n\r\n".to_owned(),
        "GET http:// HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "GET /health HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /health HTTP/1.1\r\na: {}", "b".repeat(200_000)),
        format!("POST {DENSE} HTTP/1.1\r\n{chunked}zz\r\n"),
    ] {
        let answer = server.exchange(bytes.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let log = LOG.lock().expect("no writer panics").clone();
    let log = String::from_utf8(log).expect("the log is UTF-8");
    let notable: Vec<&str> = log.lines().filter(|line| line.contains("stream error")).collect();
    assert!(notable.is_empty(), "{notable:#?}");
}

#[test]
fn lines_of_a_request_with_a_trace_have_its_ids() {
    listen();
    let collector = Collector::start();
    let server = Server::with(collector.config("0"));
    server.prepare(Trouble::Engine);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [("x-request-id", "log-trace"), ("traceparent", parent.as_str())];
    assert_eq!(server.post_with(DENSE, &headers, r#"{"input":"text"}"#).status, 500);
    drop(server);
    let lines = lines("log-trace");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let fields = &lines[0]["fields"];
    assert_eq!(fields["trace_id"], trace);
    let span = fields["span_id"].as_str().expect("an id");
    assert!(span.len() == 16 && span != "00f067aa0ba902b7", "{span}");
}

#[test]
fn a_key_file_that_everybody_can_read_is_a_warning_without_its_keys() {
    listen();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, mode, warned) in [("keys-log-5", 0o644, 1), ("keys-log-6", 0o640, 0)] {
        let path = folder.path().join(name);
        fs::write(&path, "key-kept-secret\n").expect("it is written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        Server::with(HttpConfig { api_key_file: Some(path), ..HttpConfig::default() });
        let lines = lines(name);
        assert_eq!(lines.len(), warned, "{lines:?}");
        assert!(lines.iter().all(|line| line["level"] == "WARN"), "{lines:?}");
    }
}

#[test]
fn an_emptied_key_file_is_a_warning_that_names_it() {
    listen();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys-log-7");
    fs::write(&path, "key-kept-secret\n").expect("it is written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    let _server =
        Server::with(HttpConfig { api_key_file: Some(path.clone()), ..HttpConfig::default() });
    let told = |count: usize| {
        let end = Instant::now() + PATIENCE;
        loop {
            let lines = lines("keys-log-7");
            if lines.len() >= count {
                return lines;
            }
            assert!(Instant::now() < end, "{lines:?}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    fs::write(&path, "").expect("it is written");
    told(1);
    fs::write(&path, "key-kept-secret\n").expect("it is written");
    let lines = told(2);
    assert_eq!((&lines[0]["level"], &lines[1]["level"]), (&"WARN".into(), &"INFO".into()));
    assert!(!format!("{lines:?}").contains("kept-secret"), "{lines:?}");
}
