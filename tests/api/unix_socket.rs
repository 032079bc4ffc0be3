//! Listening on a Unix socket beside the port.

use std::os::unix::net::UnixStream;

use settings::UnixSocket;
use settings::secret::ApiKey;

use crate::support::{DENSE, PATIENCE, Server, Talk, post};

#[test]
fn the_socket_and_the_port_serve_the_same_and_the_file_leaves_at_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("duovec.sock");
    let mut server = Server::set(|set| {
        set.http.unix_socket = Some(UnixSocket { path: path.clone(), mode: 0o600 });
        set.http.api_keys = vec![ApiKey::new("key")];
    });
    let ask = |key: &str| {
        let mut stream = UnixStream::connect(&path).expect("it is listened on");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        let headers = format!("authorization: Bearer {key}\r\n");
        stream.say(post(DENSE, &headers, r#"{"input":"text"}"#));
        stream.answer()
    };
    assert_eq!(ask("key").ok()["data"].as_array().map(Vec::len), Some(1));
    ask("other").refused("invalid_api_key", "");
    server.get("/health").ok();
    server.begin_stop();
    server.join();
    assert!(!path.exists());
}
