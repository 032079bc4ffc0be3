//! API keys: who must show one, and what is answered without.

use std::fs;

use crate::support::*;

/// What a server with a file of keys answers to one, before and behind a change of the file. The
/// keys of its configuration count all the time.
fn exchange(set: &[&str], files: [&str; 2], key: &str, status: [u16; 2]) -> (Server, [u16; 2]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys");
    fs::write(&path, files[0]).expect("it is written");
    let server = Server::set(|config| {
        config.http.api_keys = set.iter().copied().map(ApiKey::new).collect();
        config.http.api_key_file = Some(path.clone());
    });
    let ask = |key: &str| {
        let key = format!("Bearer {key}");
        server.post_with(DENSE, &[("authorization", &key)], TEXT).status
    };
    assert_eq!(ask(key), status[0]);
    assert_eq!([ask("old-key"), ask("")], [200, 401]);
    fs::write(&path, files[1]).expect("it is written");
    server.wait_until("the new keys count", |_| ask(key) == status[1]);
    assert!(set.iter().all(|key| ask(key) == 200));
    let others = [ask("old-key"), ask("")];
    (server, others)
}

#[test]
fn keys_of_a_file_are_exchanged_while_the_server_runs() {
    let (server, others) =
        exchange(&["set-key"], ["# ours\n\nold-key\n", "new-key\n"], "new-key", [401, 200]);
    assert_eq!(others, [401, 401]);
    server.get("/health").ok();
}

/// An emergency brake: nobody passes, whatever is shown.
#[test]
fn an_emptied_file_revokes_its_keys_and_opens_the_server_to_nobody() {
    let (server, others) =
        exchange(&[], ["old-key\n", "# all are revoked\n"], "old-key", [200, 401]);
    assert_eq!(others, [401, 401]);
    assert_eq!(server.post_bytes(DENSE, TEXT).status, 401);
}

#[test]
fn two_keys_in_two_headers_open_nothing() {
    let server = Server::set(|config| config.http.api_keys = vec![ApiKey::new("right")]);
    for keys in [["Bearer right", "Bearer wrong"], ["Bearer right"; 2]] {
        let twice = keys.map(|key| ("authorization", key));
        server.post_with(DENSE, &twice, TEXT).refused("invalid_api_key", "").says("send it once");
    }
    server.post_with(DENSE, &[("authorization", "Bearer right")], TEXT).ok();
}
