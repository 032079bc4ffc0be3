//! Tests of what is handed on and when, over streams in memory, with a clock that jumps to the next
//! timer.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::super::paused::run;
use super::*;
use crate::service::Door;
use settings::limits::MaxInflightBytes;

mod framing;

const SECOND: Duration = Duration::from_secs(1);

fn timeouts() -> Timeouts {
    timeouts_at(Door::new(MaxInflightBytes::DEFAULT))
}

fn timeouts_at(door: Arc<Door>) -> Timeouts {
    Timeouts { idle: SECOND * 75, head: SECOND, write: SECOND, least_per_s: 1, door }
}

const GET: &[u8] = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n";
const POST: &[u8] = b"POST /b HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody";
const EXPECT: &[u8] =
    b"POST /d HTTP/1.1\r\nhost: x\r\nexpect: 100-Continue\r\ncontent-length: 4\r\n\r\n";
const CHUNKED: &[u8] = b"PUT /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
                         5;a=b\r\nhello\r\n2 \r\n!\n\r\n0\r\ntrailer: x\r\n\r\n";

/// The server's side and the client's.
fn connect() -> (RequestGate<DuplexStream>, DuplexStream) {
    connect_with(timeouts())
}

fn connect_with(timeouts: Timeouts) -> (RequestGate<DuplexStream>, DuplexStream) {
    let (server, client) = duplex(1 << 20);
    let refuse_head: RefuseHead = Rc::new(|error| error.to_bare_answer("an id"));
    let stream = TimedStream::new(server, timeouts.patience(), 0);
    (RequestGate::new(stream, timeouts, refuse_head), client)
}

/// What actix is handed at once, and whether the connection has ended.
async fn handed(gate: &mut RequestGate<DuplexStream>) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut space = [0; 100];
    let mut has_rested = false;
    loop {
        let mut buffer = ReadBuf::new(&mut space);
        let read = poll_fn(|context| {
            Poll::Ready(Pin::new(&mut *gate).poll_read(context, &mut buffer).map(|end| {
                end.expect("the connection is not cut");
            }))
        });
        // Tasks pause after some reads, and connections after some bytes; this one goes on.
        if tokio::task::unconstrained(read).await.is_pending() {
            if has_rested {
                return (bytes, false);
            }
            tokio::task::yield_now().await;
            has_rested = true;
            continue;
        }
        has_rested = false;
        if buffer.filled().is_empty() {
            return (bytes, true);
        }
        bytes.extend_from_slice(buffer.filled());
    }
}

/// Whether nothing comes for `time`.
async fn waits(gate: &mut RequestGate<DuplexStream>, time: Duration) -> bool {
    tokio::time::timeout(time, gate.read_u8()).await.is_err()
}

/// What the client has been told within a second; the end of it is told too.
async fn told(client: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    let has_ended = tokio::time::timeout(SECOND, client.read_to_end(&mut bytes)).await.is_ok();
    String::from_utf8_lossy(&bytes).into_owned() + if has_ended { "<end>" } else { "" }
}

/// Asks for the body, as a handler does; whether it is known to be broken.
async fn is_broken(activity: &Activity) -> bool {
    poll_fn(|context| Poll::Ready(activity.poll_broken(context).is_ready())).await
}

async fn send(client: &mut DuplexStream, bytes: &[u8]) {
    client.write_all(bytes).await.expect("it is open");
}

#[test]
fn each_request_is_handed_on_alone_wherever_the_bytes_are_cut() {
    let requests = [POST, GET, CHUNKED, CHUNKED, GET, POST, GET];
    let bytes = requests.concat();
    run(async {
        for at in 0..=bytes.len() {
            let (mut gate, mut client) = connect();
            let mut next = requests.iter();
            let mut request = next.next();
            let mut seen = Vec::new();
            for part in [&bytes[..at], &bytes[at..]] {
                send(&mut client, part).await;
                loop {
                    seen.append(&mut handed(&mut gate).await.0);
                    let expected = request.copied().unwrap_or_default();
                    if request.is_none() || seen != expected {
                        assert!(expected.starts_with(&seen), "cut at {at}: {seen:?}");
                        break;
                    }
                    drop(gate.activity().begin(false));
                    request = next.next();
                    seen.clear();
                }
            }
            assert_eq!(request, None, "cut at {at}");
        }
    });
}

#[test]
fn the_next_request_waits_for_the_end_of_the_one_before_and_is_then_woken() {
    run(async {
        let (mut gate, mut client) = connect();
        send(&mut client, &[POST, GET].concat()).await;
        assert_eq!(handed(&mut gate).await.0, POST);
        let running = gate.activity().begin(true);
        gate.activity().body_ended();
        assert!(waits(&mut gate, SECOND * 1000).await, "a request is not timed");
        let end = async {
            sleep(SECOND).await;
            drop(running);
        };
        let (next, ()) = tokio::join!(gate.read_u8(), end);
        assert_eq!(next.expect("a byte"), b'G');
    });
}

#[test]
fn a_client_that_sends_ahead_is_read_no_further_until_its_request_ends() {
    run(async {
        let (mut gate, mut client) = connect();
        send(&mut client, GET).await;
        assert_eq!(handed(&mut gate).await.0, GET);
        let running = gate.activity().begin(false);
        send(&mut client, &GET.repeat(10_000)).await;
        assert_eq!(handed(&mut gate).await.0, b"");
        assert!((READ_AHEAD_BYTES..2 * READ_AHEAD_BYTES).contains(&gate.held.len()));
        drop(running);
        assert_eq!(handed(&mut gate).await.0, GET);
    });
}

#[test]
fn little_of_a_body_is_handed_on_before_a_handler_asks_for_it() {
    run(async {
        let (mut gate, mut client) = connect();
        let head = b"GET /e HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
        send(&mut client, &[&head[..], &[b'b'; 100_000]].concat()).await;
        let unasked = handed(&mut gate).await.0.len();
        assert!((READ_AHEAD_BYTES..2 * READ_AHEAD_BYTES).contains(&unasked), "{unasked}");
        let activity = gate.activity();
        let running = activity.begin(true);
        assert!(!is_broken(&activity).await);
        assert_eq!(unasked + handed(&mut gate).await.0.len(), head.len() + 100_000);
        drop(running);
    });
}

#[test]
fn silence_is_closed_without_a_word_before_the_first_request_and_after_each() {
    run(async {
        for requests in 0..3 {
            let (mut gate, mut client) = connect();
            for _ in 0..requests {
                send(&mut client, GET).await;
                assert_eq!(handed(&mut gate).await.0, GET);
                drop(gate.activity().begin(false));
            }
            assert!(waits(&mut gate, timeouts().idle - SECOND).await);
            let end = tokio::time::timeout(SECOND * 2, gate.read(&mut [0; 1])).await;
            assert_eq!(end.expect("it is over").expect("it ends in good order"), 0);
            assert_eq!(told(&mut client).await, "");
        }
    });
}

/// A request whose head has so many bytes, about.
fn long_head(bytes: usize) -> Vec<u8> {
    [&GET[..GET.len() - 2], b"long: ", &vec![b'a'; bytes], b"\r\n\r\n"].concat()
}

#[test]
fn what_a_long_head_takes_is_counted_from_its_bytes_on_to_the_connections_end() {
    run(async {
        let door = Door::new(MaxInflightBytes::nearest(256 * 1024));
        let mut permit = door.enter(0).expect("it announces nothing");
        permit.hold(160 * 1024).expect("there is room");
        let _others = door.count_beside(64 * 1024);
        let calm = || door.calm();
        let (mut gate, mut client) = connect_with(timeouts_at(Arc::clone(&door)));
        send(&mut client, GET).await;
        assert_eq!(handed(&mut gate).await.0, GET);
        drop(gate.activity().begin(false));
        let before = calm();
        let head = long_head(60 * 1024);
        let mut last = before;
        for part in head.chunks(20 * 1024) {
            send(&mut client, part).await;
            handed(&mut gate).await;
            assert!(calm() < last || gate.state == ReadState::Busy, "{} {last}", calm());
            last = calm();
        }
        drop(gate.activity().begin(false));
        assert!(handed(&mut gate).await.0.is_empty());
        assert_eq!((calm(), gate.held.capacity()), (last, 0), "actix keeps the room of a head");
        drop(gate);
        assert_eq!(calm(), before, "it is gone");
    });
}

#[test]
fn a_head_that_began_while_a_request_ran_is_timed_from_that_ones_end() {
    run(async {
        let (mut gate, mut client) = connect();
        send(&mut client, &[POST, b"GE"].concat()).await;
        assert_eq!(handed(&mut gate).await.0, POST);
        let running = gate.activity().begin(false);
        assert!(waits(&mut gate, SECOND * 1000).await, "a request runs");
        drop(running);
        assert!(waits(&mut gate, SECOND * 9 / 10).await);
        let late = gate.read_u8().await.expect_err("the head does not come");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert!(told(&mut client).await.starts_with("HTTP/1.1 408"));
    });
}

#[test]
fn a_client_that_never_pauses_is_timed_too() {
    run(async {
        for endless in ["\r\n", "a"] {
            let (mut gate, mut client) = connect();
            let mut ends = 0;
            for _ in 0..200 {
                send(&mut client, endless.as_bytes()).await;
                // The bytes are there already: the stream never waits.
                let mut buffer = [0; 16];
                let read = tokio::time::timeout(Duration::ZERO, gate.read(&mut buffer)).await;
                ends += u32::from(read.is_ok());
                if ends > 0 {
                    break;
                }
                tokio::time::advance(SECOND / 2).await;
            }
            assert_eq!(ends, 1, "{endless:?}");
        }
    });
}

#[test]
fn a_refused_head_is_answered_and_its_connection_read_for_seconds_only() {
    run(async {
        for (bytes, status) in [
            (b"no http\r\n\r\n".to_vec(), "400"),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "400"),
            ([&GET[..GET.len() - 2], &[b'a'; 70_000]].concat(), "431"),
        ] {
            let (mut gate, mut client) = connect();
            send(&mut client, &[&bytes[..], GET].concat()).await;
            assert_eq!(handed(&mut gate).await, (Vec::new(), false), "{status}");
            let answer = told(&mut client).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            assert!(answer.ends_with("}<end>"), "{answer}");
            let mut late = None;
            for _ in 0..11 {
                assert!(late.is_none(), "it has five seconds");
                send(&mut client, b"b").await;
                late = tokio::time::timeout(Duration::ZERO, gate.read_u8()).await.ok();
                tokio::time::advance(SECOND / 2).await;
            }
            let late = late.expect("its time is over").expect_err("it is cut");
            assert_eq!(late.kind(), ErrorKind::TimedOut);
        }
    });
}

#[test]
fn nothing_is_written_between_an_answer_and_the_next_request() {
    run(async {
        let (mut gate, mut client) = connect();
        send(&mut client, EXPECT).await;
        handed(&mut gate).await;
        let activity = gate.activity();
        let running = activity.begin(true);
        assert!(!is_broken(&activity).await);
        drop(running);
        handed(&mut gate).await;
        assert_eq!(told(&mut client).await, "<end>");
    });
}
