//! How `serve` ends: what is in flight is answered, within its time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use settings::HttpConfig;
use settings::limits::HttpThreads;

use crate::support::{DENSE, Server};

const REQUEST: &str =
    "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 16\r\n\r\n{\"input\":\"text\"}";

fn read_all(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection that is cut gives an error or nothing.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_in_flight_is_answered_before_serve_returns() {
    let mut server = Server::ready();
    server.hold();
    let mut stream = server.connect();
    stream.write_all(REQUEST.as_bytes()).expect("it is open");
    server.wait_waiting(1);
    server.begin_stop();
    // New connections are refused as soon as the listener is closed.
    while TcpStream::connect(server.address).is_ok() {
        thread::yield_now();
    }
    server.release();
    let answer = read_all(stream);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.join();
}

#[test]
fn idle_connections_do_not_delay_the_end() {
    let mut server = Server::ready();
    let idle = server.connect();
    server.post_bytes(DENSE, r#"{"input":"text"}"#).ok();
    server.begin_stop();
    server.join();
    assert_eq!(read_all(idle), "");
}

#[test]
fn without_drain_time_requests_in_flight_are_cut() {
    let mut server = Server::without_patience();
    server.hold();
    let mut stream = server.connect();
    stream.write_all(REQUEST.as_bytes()).expect("it is open");
    server.wait_waiting(1);
    server.begin_stop();
    server.join();
    server.wait_waiting(0);
    assert_eq!(read_all(stream), "");
}

#[test]
fn several_threads_serve_one_port() {
    let threads = HttpThreads::new(4).expect("in range");
    let server = Server::with(HttpConfig { threads, ..HttpConfig::default() });
    server.hold();
    let mut streams: Vec<_> = (0..16).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream
            .write_all(REQUEST.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes())
            .expect("it is open");
    }
    server.wait_waiting(16);
    server.release();
    for stream in streams {
        assert!(read_all(stream).starts_with("HTTP/1.1 200"));
    }
}
