//! Slow clients of every kind at once, beside one that is not slow.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use settings::UnixSocket;

use crate::support::{DENSE, PATIENCE, Talk, number};
use crate::tls::{Secure, embed};

const IDLE: usize = 2000;
const OF_EACH_KIND: usize = 50;
const LIMIT_MS: u64 = 1000;
const LIMIT: Duration = Duration::from_millis(LIMIT_MS);

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it is listened on");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    stream.set_nonblocking(true).expect("it is a socket");
    stream
}

/// One more byte from each; a connection that was closed takes none.
fn drip(streams: &mut [UnixStream], byte: u8) {
    for stream in streams {
        let _ = stream.write(&[byte]);
    }
}

#[test]
fn single_texts_are_answered_beside_slow_clients_of_every_kind() {
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
    let mut handshakes: Vec<_> = (0..OF_EACH_KIND).map(|_| secure.server.open(record)).collect();
    let begin = |count: usize, text: String| -> Vec<UnixStream> {
        let opened = (0..count).map(|_| {
            let mut stream = connect(&path);
            // As much as the socket takes.
            let _ = stream.write_all(text.as_bytes());
            stream
        });
        opened.collect()
    };
    let mut heads = begin(OF_EACH_KIND, "GET /health HTTP/1.1\r\nx-long: ".to_owned());
    let post = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\n");
    let mut bodies = begin(OF_EACH_KIND, format!("{post}content-length: 100000\r\n\r\n"));
    let long = format!("{post}content-type: text/plain\r\ncontent-length: 99999\r\n\r\n");
    let mut refused = begin(OF_EACH_KIND, long);
    // Few: each answer takes a while to make.
    let mut readers = begin(5, "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100));
    let start = Instant::now();
    let mut answered = 0;
    // Three times the time that each may take, so that all have been cut.
    while start.elapsed() < LIMIT * 3 || answered < 20 {
        assert!(start.elapsed() < PATIENCE, "{answered} texts were answered");
        drip(&mut heads, b'x');
        drip(&mut bodies, b' ');
        drip(&mut refused, b' ');
        assert_eq!(secure.runtime.block_on(embed(&send)), 200);
        answered += 1;
    }
    for stream in [&mut heads, &mut bodies, &mut refused, &mut readers].into_iter().flatten() {
        stream.set_nonblocking(false).expect("it is a socket");
    }
    for stream in &mut heads {
        assert!(stream.rest().contains("head_timeout"));
    }
    for stream in &mut bodies {
        assert!(stream.rest().contains("body_timeout"));
    }
    for stream in &mut refused {
        let words = stream.rest();
        assert!(words.contains("unsupported_media_type"), "{words}");
        assert_eq!(words.matches("HTTP/1.1").count(), 1, "{words}");
    }
    for stream in &mut readers {
        assert!(stream.rest().matches("HTTP/1.1 200").count() < 100, "it was cut");
    }
    for stream in &mut handshakes {
        stream.rest();
    }
    for stream in &mut idle {
        let open = stream.read(&mut [0]).expect_err("it is open, and nothing was said");
        assert_eq!(open.kind(), ErrorKind::WouldBlock);
    }
}
