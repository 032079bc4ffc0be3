//! Workers that panic and fail at random under load, as long as `DUOVEC_FUZZ_SECONDS` says: each
//! request gets one whole answer, and everything that was accepted ends.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::thread;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::support::*;
use testing::{pick, run_for};

const CLIENTS: usize = 4;
const REQUESTS: usize = 8;

#[test]
fn requests_end_once_while_workers_panic_and_fail() {
    let server = Server::ready();
    let statuses = Mutex::new(BTreeMap::<u16, u64>::new());
    run_for("storm", |rng| {
        server.engine().set(|engine| engine.random = Some(rng.fork()));
        let clients = [(); CLIENTS].map(|()| rng.fork());
        thread::scope(|scope| {
            for mut rng in clients {
                let (server, statuses) = (&server, &statuses);
                scope.spawn(move || {
                    for status in (0..REQUESTS).filter_map(|_| ask(&mut rng, server)) {
                        *statuses.lock().entry(status).or_default() += 1;
                    }
                });
            }
        });
        server.recover();
    });
    let statuses = statuses.into_inner();
    println!("storm: answers by status: {statuses:?}");
    assert!(statuses.keys().all(|status| [200, 429, 500, 503].contains(status)), "{statuses:?}");
}

/// The status of one request; `None` when its client left.
fn ask(rng: &mut Rng, server: &Server) -> Option<u16> {
    let path = pick(rng, &ROUTES);
    let words = ["one", "two", "three four", "", "a text of several words"];
    let items: Vec<_> = (0..rng.usize(1..20)).map(|_| format!("{:?}", pick(rng, &words))).collect();
    let body = format!("{{\"input\":[{}]}}", items.join(","));
    let mut stream = server.open(post(path, "connection: close\r\n", &body));
    if rng.u8(..8) == 0 {
        let _ = stream.shutdown(Shutdown::Both);
        return None;
    }
    let answer = stream.answer();
    assert_eq!(stream.rest(), "", "one whole answer");
    let (status, body) = (answer.status, answer.json());
    match status {
        200 => assert_eq!(body["data"].as_array().map(Vec::len), Some(items.len()), "{body}"),
        _ => assert!(body["error"]["code"].is_string(), "{body}"),
    }
    Some(status)
}
