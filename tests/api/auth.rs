//! API keys: who must show one, and what is answered without.

use std::fs;

use crate::support::{DENSE, Server};

const TEXT: &str = r#"{"input":"text"}"#;

/// What a server with a file of keys answers to one, before and behind a change of the file.
fn exchange(before: &str, after: &str, key: &str, status: [u16; 2]) -> (Server, [u16; 2]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys");
    fs::write(&path, before).expect("it is written");
    let server = Server::set(|set| set.http.api_key_file = Some(path.clone()));
    let ask = |key: &str| {
        let key = format!("Bearer {key}");
        server.post_with(DENSE, &[("authorization", &key)], TEXT).status
    };
    assert_eq!(ask(key), status[0]);
    let others = [ask("old-key"), ask("")];
    assert_eq!(others, [200, 401]);
    fs::write(&path, after).expect("it is written");
    server.wait_until("the new keys count", |_| ask(key) == status[1]);
    let others = [ask("old-key"), ask("")];
    (server, others)
}

#[test]
fn keys_of_a_file_are_exchanged_while_the_server_runs() {
    let (server, others) = exchange("# ours\n\nold-key\n", "new-key\n", "new-key", [401, 200]);
    assert_eq!(others, [401, 401]);
    server.get("/health").ok();
}

/// An emergency brake: nobody passes, whatever is shown.
#[test]
fn an_emptied_file_revokes_its_keys_and_opens_the_server_to_nobody() {
    let (server, others) = exchange("old-key\n", "# all are revoked\n", "old-key", [200, 401]);
    assert_eq!(others, [401, 401]);
    assert_eq!(server.post_bytes(DENSE, TEXT).status, 401);
}
