//! Connections without an HTTP client, for bytes that none would send.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::header::HeaderMap;

use super::{Answer, PATIENCE, Server};

/// The head of a request whose body follows; `headers` are lines with their ends.
pub(crate) fn head(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
}

/// A request with a body.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    head(path, &format!("content-length: {}\r\n{headers}", body.len())) + body
}

pub(crate) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
}

impl Server {
    /// A bare connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the port is bound");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("it is a socket");
        stream.set_nodelay(true).expect("it is a socket");
        stream
    }

    /// A connection on which these bytes were sent.
    pub(crate) fn open(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = self.connect();
        stream.say(bytes);
        stream
    }

    /// Sends bytes on a connection of their own and reads until the server closes it.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes);
        stream.rest()
    }
}

/// What the server says within that time.
pub(crate) fn said_within(stream: &mut TcpStream, time: Duration) -> String {
    stream.set_read_timeout(Some(time)).expect("it is a socket");
    let mut said = [0; 4096];
    let length = match stream.read(&mut said) {
        Err(error) if is_silence(&error) => 0,
        other => other.expect("the connection is not cut"),
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    String::from_utf8_lossy(&said[..length]).into_owned()
}

/// What both sides say on a connection.
pub(crate) trait Talk: Read + Write {
    /// Sends all of it.
    #[track_caller]
    fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.write_all(bytes.as_ref()).expect("it is open");
    }

    /// The next answer.
    #[track_caller]
    fn answer(&mut self) -> Answer {
        self.answer_to(false).expect("the connection is open")
    }

    /// The next answer, without a body to HEAD; `None` when the server has closed the connection
    /// instead.
    #[track_caller]
    fn answer_to(&mut self, to_head: bool) -> Option<Answer> {
        let (head, body) = self.message(to_head)?;
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut headers);
        assert!(parsed.parse(&head).expect("it is HTTP").is_complete());
        let pair = |header: &httparse::Header<'_>| {
            let value = header.value.try_into().expect("a value");
            (header.name.parse().expect("a name"), value)
        };
        let headers: HeaderMap = parsed.headers.iter().map(pair).collect();
        assert_eq!(headers.len(), parsed.headers.len(), "a header comes twice: {headers:?}");
        let asked = format!("bytes in HTTP/1.{}", parsed.version.expect("it is there"));
        let answer = Answer { asked, status: parsed.code.expect("it is there"), headers, body };
        if answer.status >= 200 {
            answer.check_common(to_head);
        }
        Some(answer)
    }

    /// Head and body of the next answer, for which the same holds.
    #[track_caller]
    fn message(&mut self, to_head: bool) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            match self.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                Err(error) if is_silence(&error) => panic!("no answer comes"),
                _ => {
                    assert!(head.is_empty(), "half a head: {}", String::from_utf8_lossy(&head));
                    return None;
                }
            }
        }
        let text = String::from_utf8_lossy(&head);
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.filter(|_| !to_head).map_or(0, |length| length.parse().expect("int"));
        let mut body = vec![0; length];
        self.read_exact(&mut body).expect("the body is whole");
        Some((head, body))
    }

    /// Sends it in pieces of such lengths; whether the server took all of it.
    fn say_in_pieces(&mut self, mut bytes: &[u8], mut length: impl FnMut() -> usize) -> bool {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(length().clamp(1, bytes.len()));
            if self.write_all(piece).is_err() {
                return false;
            }
            bytes = rest;
        }
        true
    }

    /// All that the server says until it closes the connection.
    #[track_caller]
    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&self.rest_of_bytes()).into_owned()
    }

    #[track_caller]
    fn rest_of_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let ended = self.read_to_end(&mut bytes);
        // A reset ends a connection as well as an orderly close; only silence does not.
        let silent = ended.as_ref().is_err_and(is_silence);
        let words = String::from_utf8_lossy(&bytes);
        assert!(!silent, "the server does not close the connection, and said: {words}");
        bytes
    }
}

impl<S: Read + Write> Talk for S {}

fn is_silence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
