//! How `serve` ends: what is in flight is answered, within its time.

use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{DENSE, PATIENCE, Server, Talk, number, post};

fn text() -> String {
    post(DENSE, "", r#"{"input":"text"}"#)
}

/// All that comes until the connection ends or is cut.
fn read_all(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_in_flight_is_answered_before_serve_returns_and_idle_connections_do_not_delay_it() {
    let mut server = Server::ready();
    server.hold();
    let (stream, idle) = (server.open(text()), server.connect());
    server.wait_waiting(1);
    let begin = Instant::now();
    server.begin_stop();
    // New connections are refused as soon as the listener is closed.
    while TcpStream::connect(server.address).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    server.release();
    let answer = read_all(stream);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.join();
    assert!(begin.elapsed() < PATIENCE / 2, "it waited for the whole drain");
    assert_eq!(read_all(idle), "");
}

#[test]
fn without_drain_time_requests_in_flight_are_cut() {
    let mut server = Server::set(|set| set.drain_timeout = Duration::ZERO);
    server.hold();
    let stream = server.open(text());
    server.wait_waiting(1);
    server.begin_stop();
    server.join();
    server.wait_waiting(0);
    assert_eq!(read_all(stream), "");
}

#[test]
fn several_threads_serve_one_port() {
    let server = Server::set(|set| set.http.threads = number(4));
    server.hold();
    let streams = [(); 16].map(|()| server.open(text()));
    server.wait_waiting(16);
    server.release();
    for mut stream in streams {
        stream.answer().ok();
    }
}
