//! Listening on a Unix socket beside the port.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use settings::secret::ApiKey;
use settings::{HttpConfig, UnixSocket};

use crate::support::{DENSE, PATIENCE, Server};

#[test]
fn the_socket_and_the_port_serve_the_same_and_the_file_leaves_at_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("duovec.sock");
    let mut server = Server::with(HttpConfig {
        unix_socket: Some(UnixSocket { path: path.clone(), mode: 0o600 }),
        api_keys: vec![ApiKey::new("key")],
        ..HttpConfig::default()
    });
    let ask = |key: &str| {
        let mut stream = UnixStream::connect(&path).expect("it is listened on");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        let body = r#"{"input":"text"}"#;
        let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
        let request = format!("{head}connection: close\r\ncontent-length: 16\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("it is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let answer = ask("key");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"embedding\""), "{answer}");
    assert!(ask("other").starts_with("HTTP/1.1 401"), "the key is asked for here too");
    server.get("/health").ok();
    server.begin_stop();
    server.join();
    assert!(!path.exists());
}
