//! Tests of each time-out, over streams in memory, with a clock that jumps to the next timer.

use std::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUTS: Timeouts = Timeouts { idle: Duration::from_secs(75), head: SECOND, write: SECOND };

/// The server's side and the client's.
fn connect() -> (TimedStream<DuplexStream>, DuplexStream) {
    let (server, client) = duplex(64);
    (TimedStream::new(server, TIMEOUTS), client)
}

/// Runs on a clock that stands still while there is work, and jumps when all wait for it.
fn run<F: Future>(test: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// Whether the stream still waits for bytes after `time`.
async fn waits(stream: &mut TimedStream<DuplexStream>, time: Duration) -> bool {
    tokio::time::timeout(time, stream.read_u8()).await.is_err()
}

#[test]
fn a_head_that_comes_in_drops_ends_with_408_after_its_time() {
    run(async {
        let (mut server, mut client) = connect();
        assert!(waits(&mut server, SECOND * 70).await, "silence is not a slow head");
        client.write_all(b"G").await.expect("it is open");
        server.read_u8().await.expect("a byte");
        assert!(waits(&mut server, SECOND / 2).await);
        client.write_all(b"E").await.expect("it is open");
        server.read_u8().await.expect("a byte");
        assert!(waits(&mut server, SECOND / 3).await);
        let late = server.read_u8().await.expect_err("a later byte gives no more time");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 408");
    });
}

#[test]
fn a_request_that_runs_is_not_timed_and_the_next_head_is_again() {
    run(async {
        let (mut server, mut client) = connect();
        client.write_all(b"GET").await.expect("it is open");
        server.read_exact(&mut [0; 3]).await.expect("bytes");
        assert!(waits(&mut server, SECOND / 2).await);
        let running = server.activity().begin(true);
        client.write_all(b"body").await.expect("it is open");
        server.read_exact(&mut [0; 4]).await.expect("bytes");
        server.activity().body_ended();
        assert!(waits(&mut server, SECOND * 1000).await);
        drop(running);
        assert!(waits(&mut server, SECOND * 70).await);
        client.write_all(b"G").await.expect("it is open");
        server.read_u8().await.expect("a byte");
        assert!(!waits(&mut server, SECOND * 2).await);
    });
}

#[test]
fn a_client_that_never_pauses_is_timed_too() {
    run(async {
        let (mut server, mut client) = connect();
        let mut late = None;
        for _ in 0..5 {
            client.write_all(b"G").await.expect("it is open");
            // The byte is there already: the stream never waits.
            late = late.or(server.read_u8().await.err());
            tokio::time::advance(SECOND / 2).await;
        }
        assert_eq!(late.map(|error| error.kind()), Some(ErrorKind::TimedOut));
    });
}

/// Whether the stream ends after `time` and not before, and without a word to the client.
async fn ends_silently_after(
    server: &mut TimedStream<DuplexStream>,
    client: &mut DuplexStream,
    time: Duration,
) -> bool {
    let is_late = waits(server, time - SECOND / 10).await && !waits(server, SECOND / 5).await;
    is_late && waits_for_word(client).await
}

async fn waits_for_word(client: &mut DuplexStream) -> bool {
    tokio::time::timeout(SECOND, client.read_u8()).await.is_err()
}

#[test]
fn silence_is_closed_without_a_word_before_the_first_request_and_after_each() {
    run(async {
        for requests in 0..3 {
            let (mut server, mut client) = connect();
            for _ in 0..requests {
                client.write_all(b"GET").await.expect("it is open");
                server.read_exact(&mut [0; 3]).await.expect("bytes");
                drop(server.activity().begin(false));
            }
            assert!(ends_silently_after(&mut server, &mut client, TIMEOUTS.idle).await);
        }
    });
}

#[test]
fn half_a_head_behind_a_request_does_not_keep_a_connection_for_ever() {
    run(async {
        let (mut server, mut client) = connect();
        client.write_all(b"GET / HTTP/1.1\r\n\r\nGET /").await.expect("it is open");
        server.read_exact(&mut [0; 23]).await.expect("bytes");
        drop(server.activity().begin(false));
        assert!(ends_silently_after(&mut server, &mut client, TIMEOUTS.idle).await);
    });
}

#[test]
fn a_head_that_began_while_a_request_ran_is_timed_from_that_ones_end() {
    run(async {
        let (mut server, mut client) = connect();
        client.write_all(b"POST").await.expect("it is open");
        server.read_exact(&mut [0; 4]).await.expect("bytes");
        let running = server.activity().begin(true);
        client.write_all(b"body").await.expect("it is open");
        server.read_exact(&mut [0; 4]).await.expect("bytes");
        server.activity().body_ended();
        client.write_all(b"GE").await.expect("it is open");
        server.read_exact(&mut [0; 2]).await.expect("bytes");
        assert!(waits(&mut server, SECOND * 1000).await, "a request runs");
        drop(running);
        assert!(waits(&mut server, SECOND * 9 / 10).await);
        let late = server.read_u8().await.expect_err("the head does not come");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 408");
    });
}

#[test]
fn the_rest_of_a_refused_body_is_no_head_and_is_read_for_seconds_only() {
    run(async {
        let (mut server, mut client) = connect();
        client.write_all(b"POST").await.expect("it is open");
        server.read_exact(&mut [0; 4]).await.expect("bytes");
        drop(server.activity().begin(true));
        let mut late = None;
        for _ in 0..11 {
            assert!(late.is_none(), "it has five seconds");
            client.write_all(b"b").await.expect("it is open");
            late = server.read_u8().await.err();
            tokio::time::advance(SECOND / 2).await;
        }
        assert_eq!(late.map(|error| error.kind()), Some(ErrorKind::TimedOut));
        assert!(waits_for_word(&mut client).await, "one request has one answer");
    });
}

#[test]
fn an_answer_that_is_not_taken_ends_the_connection_and_a_slow_reader_does_not() {
    run(async {
        let (mut server, mut client) = connect();
        server.write_all(&[1; 64]).await.expect("there is room");
        let slow = async {
            for _ in 0..64 {
                tokio::time::sleep(SECOND * 9 / 10).await;
                client.read_u8().await.expect("a byte");
            }
        };
        let (written, ()) = tokio::join!(server.write_all(&[2; 64]), slow);
        written.expect("each byte gives more time");
        let stuck = server.write_all(&[3; 64]).await.expect_err("nobody reads");
        assert_eq!(stuck.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_client_that_sends_ahead_is_read_no_further_until_its_request_ends() {
    run(async {
        let (mut server, mut client) = connect();
        client.write_all(b"GET").await.expect("it is open");
        server.read_exact(&mut [0; 3]).await.expect("bytes");
        let running = server.activity().begin(false);
        let client = tokio::task::spawn_local(async move {
            let sent = client.write_all(&[b'x'; 1_000_000]).await;
            (sent, client)
        });
        let mut ahead = 0;
        let mut read = async |server: &mut TimedStream<DuplexStream>| {
            while let Ok(read) = tokio::time::timeout(SECOND, server.read(&mut [0; 1024])).await {
                ahead += read.expect("it is open");
            }
            ahead
        };
        let held = read(&mut server).await;
        // Actix reads a buffer of 128 KiB and then polls itself without a pause.
        assert!(held < 128 * 1024, "{held} bytes were read ahead");
        let woken = async {
            sleep(SECOND).await;
            drop(running);
        };
        let (more, ()) = tokio::join!(server.read_u8(), woken);
        more.expect("the end of the request wakes the reader");
        drop(client);
    });
}
