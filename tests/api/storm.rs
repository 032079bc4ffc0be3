//! Workers that panic and fail at random under load, as long as `DUOVEC_FUZZ_SECONDS` says: each
//! request gets one whole answer, and everything that was accepted ends.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;

use fastrand::Rng;

use crate::support::{BOTH, DENSE, PATIENCE, SPARSE, Server};
use testing::{pick, run_for};

const CLIENTS: usize = 4;
const REQUESTS: usize = 8;

#[test]
fn requests_end_once_while_workers_panic_and_fail() {
    let server = Server::ready();
    let mut statuses = BTreeMap::<u16, u64>::new();
    run_for("storm", |rng| {
        server.fail_at_random(rng.u64(..));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (mut rng, address) = (rng.fork(), server.address);
                thread::spawn(move || {
                    (0..REQUESTS).filter_map(|_| ask(&mut rng, address)).collect()
                })
            })
            .collect();
        for client in clients {
            let answered: Vec<u16> = client.join().expect("a client's checks hold");
            for status in answered {
                *statuses.entry(status).or_default() += 1;
            }
        }
        server.recover();
    });
    println!("storm: answers by status: {statuses:?}, {} workers were replaced", server.restarts());
    assert!(statuses.keys().all(|status| [200, 429, 500, 503].contains(status)), "{statuses:?}");
}

/// The status of one request; `None` when its client left.
fn ask(rng: &mut Rng, address: SocketAddr) -> Option<u16> {
    let path = pick(rng, &[DENSE, SPARSE, BOTH]);
    let words = ["one", "two", "three four", "", "a text of several words"];
    let items: Vec<_> = (0..rng.usize(1..20)).map(|_| format!("{:?}", pick(rng, &words))).collect();
    let body = format!("{{\"input\":[{}]}}", items.join(","));
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(address).expect("the port is bound");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    stream.write_all(request.as_bytes()).expect("the server reads");
    if rng.u8(..8) == 0 {
        let _ = stream.shutdown(Shutdown::Both);
        return None;
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer ends with the connection");
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let length = response.parse(&answer).expect("it is HTTP").unwrap();
    let announced = response.headers.iter().find(|header| header.name == "content-length");
    let announced = announced.expect("every answer has a length").value;
    let announced: usize = std::str::from_utf8(announced).ok()?.parse().expect("it is a number");
    assert_eq!(answer.len(), length + announced, "{}", String::from_utf8_lossy(&answer));
    let body: serde_json::Value = serde_json::from_slice(&answer[length..]).expect("it is JSON");
    let status = response.code.expect("it was parsed");
    match status {
        200 => assert_eq!(body["data"].as_array().map(Vec::len), Some(items.len()), "{body}"),
        _ => assert!(body["error"]["code"].is_string(), "{body}"),
    }
    Some(status)
}
