//! What the log says of a request, and what it must not.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, Once};
use std::time::Instant;

use crate::support::*;

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

pub(crate) fn log() -> String {
    String::from_utf8(LOG.lock().expect("no writer panics").clone()).expect("the log is UTF-8")
}

/// The only line that names this request.
#[track_caller]
pub(crate) fn line(request_id: &str) -> Value {
    let mut lines = lines(request_id);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// The lines that name this request.
pub(crate) fn lines(request_id: &str) -> Vec<Value> {
    log()
        .lines()
        .filter(|line| line.contains(request_id))
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect()
}

#[test]
fn requests_that_all_end_late_write_few_lines_above_debug() {
    listen();
    let server = Server::ready();
    server.hold();
    let began = Instant::now();
    let ids: Vec<String> = (0..60).map(|number| format!("log-late-{number}-")).collect();
    for id in &ids {
        let headers = [("x-request-id", id.as_str()), ("x-request-timeout-ms", "1")];
        assert!(server.post_with(DENSE, &headers, TEXT).status >= 429);
    }
    let is_notable = |id: &&String| line(id)["level"] != "DEBUG";
    let notable = ids.iter().filter(is_notable).count();
    let most = 10 * (1 + began.elapsed().as_secs() as usize);
    assert!((1..=most).contains(&notable), "{notable} of {}", ids.len());
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
    let log = log();
    let notable: Vec<&str> = log.lines().filter(|line| line.contains("stream error")).collect();
    assert!(notable.is_empty(), "{notable:#?}");
}

/// A server with a file of one key that so many may read.
fn with_key_file(folder: &Path, name: &str, mode: u32) -> (Server, PathBuf) {
    let path = folder.join(name);
    fs::write(&path, "key-kept-secret\n").expect("it is written");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
    (Server::set(|set| set.http.api_key_file = Some(path.clone())), path)
}

#[test]
fn a_key_file_that_everybody_can_read_is_a_warning_without_its_keys() {
    listen();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, mode, warned) in [("keys-log-5", 0o644, 1), ("keys-log-6", 0o640, 0)] {
        with_key_file(folder.path(), name, mode);
        let lines = lines(name);
        assert_eq!(lines.len(), warned, "{lines:?}");
        assert!(lines.iter().all(|line| line["level"] == "WARN"), "{lines:?}");
    }
}

#[test]
fn an_emptied_key_file_is_a_warning_that_names_it() {
    listen();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (server, path) = with_key_file(folder.path(), "keys-log-7", 0o600);
    for (told, text) in ["", "key-kept-secret\n"].iter().enumerate() {
        fs::write(&path, text).expect("it is written");
        server.wait_until("the log says it", |_| lines("keys-log-7").len() > told);
    }
    let lines = lines("keys-log-7");
    assert_eq!((&lines[0]["level"], &lines[1]["level"]), (&"WARN".into(), &"INFO".into()));
    assert!(!format!("{lines:?}").contains("kept-secret"), "{lines:?}");
}
