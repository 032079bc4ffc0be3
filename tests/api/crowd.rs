//! Slow clients of every kind at once, beside one that is not slow.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use settings::UnixSocket;

use crate::support::*;
use crate::tls::{Secure, embed};

const IDLE: usize = 2000;
const OF_EACH_KIND: usize = 25;
const LIMIT_MS: u64 = 1000;
const LIMIT: Duration = Duration::from_millis(LIMIT_MS);

/// What clients begin a request with, what comes of it by the byte, again and again, how many
/// answers come before the one that ends the connection, and the status and the words of that one.
type Kind = (String, &'static str, usize, &'static str, [&'static str; 2]);

fn kinds() -> [Kind; 6] {
    let long = "GET /health HTTP/1.1\r\nx-long: ";
    let late = ["\"head_timeout\"", "did not come in time"];
    let stopped = ["\"body_timeout\"", "did not come within"];
    let refused = ["\"unsupported_media_type\"", "content-type"];
    let behind_two = get("/health/live", "").repeat(2) + long;
    let [sized, plain] = ["", "content-type: text/plain\r\n"]
        .map(|more| head(DENSE, &format!("{more}content-length: 99999\r\n")));
    let stops = head(DENSE, "transfer-encoding: chunked\r\n") + "100\r\n{";
    let plain_chunks = head(DENSE, "content-type: text/plain\r\ntransfer-encoding: chunked\r\n");
    [
        (long.to_owned(), "x", 0, "408", late),
        (behind_two, "x", 2, "408", late),
        (sized, " ", 0, "408", stopped),
        (stops, "", 0, "408", stopped),
        (plain, " ", 0, "415", refused),
        (plain_chunks, "1\r\nx\r\n", 0, "415", refused),
    ]
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it is listened on");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    stream.set_nonblocking(true).expect("it is a socket");
    stream
}

/// The last answer ends the connection, and is the only one that was not asked for.
fn is_cut(kind: &Kind, stream: &mut UnixStream) {
    let ((begin, _, before, status, words), said) = (kind, stream.rest());
    let answers: Vec<&str> = said.split("HTTP/1.1 ").skip(1).collect();
    assert_eq!(answers.len(), before + 1, "{begin}: {said}");
    let (head, body) = answers[*before].split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with(*status), "{begin}: {said}");
    let length = format!("content-length: {}", body.len());
    for header in ["connection: close", "x-request-id: ", &length] {
        assert!(head.contains(header), "{begin}, {header}: {said}");
    }
    assert!(words.iter().all(|word| body.contains(word)), "{begin}: {said}");
}

#[test]
fn slow_clients_of_every_kind_are_cut_and_single_texts_answered_beside_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("duovec.sock");
    let secure = Secure::set(|set| {
        set.http.unix_socket = Some(UnixSocket { path: path.clone(), mode: 0o600 });
        set.http.max_connections = number(IDLE as u64 * 2);
        set.http.head_timeout = number(LIMIT_MS);
        set.http.body_timeout = number(LIMIT_MS);
        set.http.write_timeout = number(LIMIT_MS);
    });
    duovec::descriptors::raise_limit().expect("there is a limit");
    let send = secure.http_2();
    let mut idle: Vec<_> = (0..IDLE).map(|_| connect(&path)).collect();
    // The begin of a record that is never whole.
    let record = b"\x16\x03\x01\x02";
    let mut handshakes: Vec<_> =
        (0..2 * OF_EACH_KIND).map(|_| secure.server.open(record)).collect();
    let begin = |count: usize, text: &str| -> Vec<UnixStream> {
        let opened = (0..count).map(|_| {
            let mut stream = connect(&path);
            // As much as the socket takes.
            let _ = stream.write_all(text.as_bytes());
            stream
        });
        opened.collect()
    };
    let mut kinds = kinds().map(|kind| (begin(OF_EACH_KIND, &kind.0), kind));
    // Few: each answer takes a while to make.
    let mut readers = begin(5, &get("/openapi.json", "").repeat(100));
    let start = Instant::now();
    let mut answered = 0;
    // Three times the time that each may take, so that all have been cut.
    while start.elapsed() < LIMIT * 3 || answered < 20 {
        assert!(start.elapsed() < PATIENCE, "{answered} texts were answered");
        for (streams, kind) in &mut kinds {
            let byte = kind.1.bytes().cycle().nth(answered);
            // A connection that was closed takes none.
            streams.iter_mut().for_each(|stream| drop(stream.write(byte.as_slice())));
        }
        assert_eq!(secure.runtime.block_on(embed(&send)), 200);
        answered += 1;
    }
    for stream in kinds.iter_mut().flat_map(|(streams, _)| streams).chain(&mut readers) {
        stream.set_nonblocking(false).expect("it is a socket");
    }
    for (streams, kind) in &mut kinds {
        streams.iter_mut().for_each(|stream| is_cut(kind, stream));
    }
    for stream in &mut readers {
        assert!(stream.rest().matches("HTTP/1.1 200").count() < 100, "a reader was cut");
    }
    for stream in &mut handshakes {
        stream.rest();
    }
    for stream in &mut idle {
        let open = stream.read(&mut [0]).expect_err("it is open, and nothing was said");
        assert_eq!(open.kind(), ErrorKind::WouldBlock);
    }
}
