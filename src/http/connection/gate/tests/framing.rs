//! What the gate and actix's own codec understand of the same bytes.

use actix_codec::Decoder;
use actix_http::ServiceConfig;
use actix_http::h1::{Codec, Message, MessageType};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::body::Rest;
use super::super::head::{HeadVerdict, judge};
use super::*;

/// How much of some bytes is one request.
#[derive(Debug, PartialEq, Eq)]
enum Extent {
    /// Its head is not whole.
    Partial,
    /// Its body is not whole.
    Open,
    /// It is this long.
    Whole(usize),
    /// It cannot be one.
    Refused,
}

fn by_gate(bytes: &mut [u8]) -> Extent {
    match judge(bytes) {
        HeadVerdict::Partial => Extent::Partial,
        HeadVerdict::Refused(_) => Extent::Refused,
        HeadVerdict::Whole(mut head) => {
            let own = head.length + head.body.advance(&bytes[head.length..]);
            match head.body {
                Rest::Broken => Extent::Refused,
                rest if rest.has_ended() => Extent::Whole(own),
                _ => {
                    assert_eq!(own, bytes.len(), "more may come, but not yet");
                    Extent::Open
                }
            }
        }
    }
}

/// Also whether actix would change the protocol, or send a word before the answer.
fn by_actix(bytes: &[u8], config: &ServiceConfig) -> (Extent, bool) {
    let mut codec = Codec::new(config.clone());
    let mut left = BytesMut::from(bytes);
    let is_special = match codec.decode(&mut left) {
        Err(_) => return (Extent::Refused, false),
        Ok(None) => return (Extent::Partial, false),
        Ok(Some(Message::Chunk(_))) => panic!("a body without a head"),
        Ok(Some(Message::Item(request))) => request.head().expect() || request.upgrade(),
    };
    let extent = match codec.message_type() {
        MessageType::None => Extent::Whole(bytes.len() - left.len()),
        MessageType::Payload => body_by_actix(&mut codec, left, bytes.len()),
        MessageType::Stream => return (Extent::Open, true),
    };
    (extent, is_special)
}

fn body_by_actix(codec: &mut Codec, mut left: BytesMut, length: usize) -> Extent {
    loop {
        match codec.decode(&mut left) {
            Err(_) => return Extent::Refused,
            Ok(None) => return Extent::Open,
            Ok(Some(Message::Chunk(None))) => return Extent::Whole(length - left.len()),
            Ok(Some(Message::Chunk(Some(_)))) => {}
            Ok(Some(Message::Item(_))) => panic!("a head within a body"),
        }
    }
}

/// Parts of heads and bodies, right ones and wrong ones.
const PARTS: [&str; 44] = [
    "GET / HTTP/1.1\r\n",
    "POST / HTTP/1.1\r\n",
    "POST /a HTTP/1.0\r\n",
    "PUT * HTTP/1.1\r\n",
    "GET http://a/b HTTP/1.1\r\n",
    "GET http:// HTTP/1.1\r\n",
    "!x /\u{e9}\" HTTP/1.1\n",
    "host: x\r\n",
    "host: x\r\n",
    "host: x\r\n",
    "host:x\n",
    "content-length: 3\r\n",
    "Content-Length:3\r\n",
    "content-length: 0\r\n",
    "content-length: 03 \r\n",
    "content-length: +3\r\n",
    "content-length:\r\n",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding: CHUNKED\t\r\n",
    "transfer-encoding: identity\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "upgrade: websocket\r\n",
    "Upgrade: h2c, websocket\r\n",
    "connection: close, UPGRADE\r\n",
    "connection: upgrade\r\n",
    "expect: 100-continue\r\n",
    "expect: a, \"100-continue\"\r\n",
    " folded\r\n",
    "a\r\n",
    "b : c\r\n",
    "d: e\rf\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "3\r\nabc\r\n",
    "3;a=\"b\"\r\nabc\r\n",
    "3 \r\nabc\r\n",
    "03\nabc\r\n",
    "abc",
    "0\r\n\r\n",
    "0\r\nt: u\r\n\r\n",
    "0\n\n",
    "fffffffffffffffff\r\n",
];

fn parts() -> impl Strategy<Value = Vec<u8>> {
    let request = (0..7_usize, prop::collection::vec(0..PARTS.len(), 0..9));
    let damage = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (request, damage).prop_map(|((first, more), damage)| {
        let rest = more.into_iter().map(|part| PARTS[part]);
        let mut bytes = [PARTS[first]].into_iter().chain(rest).collect::<String>().into_bytes();
        if let Some((place, byte)) = damage {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

/// What the gate lets through is one request for actix too, and ends at the same byte.
#[test]
fn a_request_ends_for_the_gate_where_it_ends_for_actix() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(20_000));
    // Actix's clock is a task.
    let compared = run(async {
        let config = ServiceConfig::default();
        runner.run(&parts(), |mut bytes| {
            let gate = by_gate(&mut bytes);
            let (actix, is_special) = by_actix(&bytes, &config);
            // The gate may be stricter. It must never wait for a head that actix has read.
            let agrees = match gate {
                Extent::Refused => true,
                Extent::Partial => matches!(actix, Extent::Partial | Extent::Refused),
                Extent::Open | Extent::Whole(_) => gate == actix && !is_special,
            };
            prop_assert!(agrees, "{gate:?}, {actix:?}: {}", String::from_utf8_lossy(&bytes));
            Ok(())
        })
    });
    compared.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn only_words_that_actix_would_act_on_are_overwritten() {
    let head = "GET / HTTP/1.1\r\nhost: upgrade\r\nconnection: close, Upgrade ,te\r\n\
                upgrade: h2c\r\nexpect: 100-continue\r\nx-upgrade: websocket\r\n\r\n";
    let mut bytes = head.as_bytes().to_vec();
    let HeadVerdict::Whole(whole) = judge(&mut bytes) else { panic!("it is whole") };
    assert!(whole.awaits_continue);
    let expected = head
        .replace(" Upgrade ,te", "         ,te")
        .replace("upgrade: h2c", "upgrade:    ")
        .replace("expect: 100-continue", "expect:             ")
        .replace("x-upgrade:    ", "x-upgrade: websocket");
    assert_eq!(String::from_utf8(bytes).expect("ASCII"), expected);
}
