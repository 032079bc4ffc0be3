//! Tests of the time that a client has, over streams in memory, with a clock that jumps to the next
//! timer.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use super::super::paused::run;
use super::*;
use crate::service::{Door, Permit};
use settings::limits::MaxInflightBytes;

const SECOND: Duration = Duration::from_secs(1);

/// While memory is free.
fn patience(most: Duration, least_per_s: u64) -> Patience {
    Patience::new(most, least_per_s, Door::new(MaxInflightBytes::DEFAULT))
}

/// Of a server that holds so much of what it may, as long as the permit lives.
fn crowded(most: Duration, least_per_s: u64, part: f64) -> (Patience, Permit) {
    let door = Door::new(MaxInflightBytes::DEFAULT);
    let mut permit = door.enter(0).expect("there is room");
    permit.hold((door.limit() as f64 * part) as u64).expect("there is room");
    (Patience::new(most, least_per_s, door), permit)
}

/// A client with ten seconds and a least rate of four bytes a second takes a byte after each
/// `pause`; how the 64 bytes that wait for it end.
fn written_to_one_who_takes_a_byte_after(pause: Duration) -> io::Result<()> {
    run(async {
        let (server, mut client) = duplex(64);
        let mut server = TimedStream::new(server, patience(10 * SECOND, 4), 0);
        server.write_all(&[1; 64]).await.expect("there is room");
        let slow = async {
            loop {
                sleep(pause).await;
                client.read_u8().await.expect("a byte");
            }
        };
        tokio::select! {
            written = server.write_all(&[2; 64]) => written,
            () = slow => unreachable!("it never ends"),
        }
    })
}

#[test]
fn a_client_that_takes_less_than_the_least_rate_is_cut_and_a_faster_one_is_not() {
    written_to_one_who_takes_a_byte_after(SECOND / 5).expect("five bytes a second");
    let cut = written_to_one_who_takes_a_byte_after(SECOND).expect_err("one byte a second");
    assert_eq!(cut.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_client_that_takes_nothing_is_cut_however_fast_it_was() {
    run(async {
        let (server, mut client) = duplex(64);
        let mut server = TimedStream::new(server, patience(10 * SECOND, 4), 0);
        server.write_all(&[1; 64]).await.expect("there is room");
        // Pauses are right as long as the time lasts, and what is taken gives it back.
        let reader = async {
            for _ in 0..3 {
                sleep(9 * SECOND).await;
                client.read_exact(&mut [0; 64]).await.expect("they are written");
            }
        };
        let (written, ()) = tokio::join!(server.write_all(&[2; 3 * 64]), reader);
        written.expect("it was fast enough");
        let stuck = server.write_all(&[3; 64]).await.expect_err("nobody reads");
        assert_eq!(stuck.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn without_a_least_rate_each_byte_gives_all_of_the_time() {
    run(async {
        let (server, mut client) = duplex(64);
        let mut server = TimedStream::new(server, patience(SECOND, 0), 0);
        server.write_all(&[1; 64]).await.expect("there is room");
        let slow = async {
            for _ in 0..64 {
                sleep(SECOND * 9 / 10).await;
                client.read_u8().await.expect("a byte");
            }
        };
        let (written, ()) = tokio::join!(server.write_all(&[2; 64]), slow);
        written.expect("each byte gives more time");
    });
}

/// How long a client of ten seconds that takes nothing is waited for when so much is held.
fn cut_after(part: f64) -> Duration {
    run(async {
        let (patience, _held) = crowded(10 * SECOND, 4, part);
        let (server, _client) = duplex(64);
        let mut server = TimedStream::new(server, patience, 0);
        server.write_all(&[1; 64]).await.expect("there is room");
        let begin = tokio::time::Instant::now();
        server.write_all(&[2; 64]).await.expect_err("nobody reads");
        begin.elapsed()
    })
}

#[test]
fn a_client_that_takes_nothing_is_cut_the_sooner_the_less_memory_is_free() {
    let times = [0.0, 0.5, 0.7, 0.8, 0.874].map(|part| cut_after(part).as_millis());
    let about = |ms: u128, time: u128| (ms..ms + 20).contains(&time);
    assert!(about(10_000, times[0]) && about(10_000, times[1]), "{times:?}");
    assert!(about(6_000, times[2]) && about(4_000, times[3]), "{times:?}");
    assert!(about(2_520, times[4]), "{times:?}");
}

/// How a client ends that takes so many bytes after each pause of 2 ms, without a least rate, at a
/// server that holds seven eighths of what it may.
fn written_to_one_who_takes(part: usize) -> io::Result<()> {
    run(async {
        let (patience, _held) = crowded(10 * SECOND, 0, 0.874);
        let (server, mut client) = duplex(part);
        let mut server = TimedStream::new(server, patience, 0);
        let reader = async {
            let mut taken = vec![0; part];
            loop {
                sleep(SECOND / 500).await;
                client.read_exact(&mut taken).await.expect("the server's side is open");
            }
        };
        let answer = vec![1; part * 10_000];
        tokio::select! {
            written = server.write_all(&answer) => written,
            () = reader => unreachable!("it never ends"),
        }
    })
}

#[test]
fn a_client_must_be_faster_while_little_memory_is_free() {
    written_to_one_who_takes(1024).expect("512 KB a second");
    let cut = written_to_one_who_takes(64).expect_err("32 KB a second");
    assert_eq!(cut.kind(), ErrorKind::TimedOut);
}

/// While a megabyte waits to be read, of which actix and h2 read so much at once. The other task
/// goes on when the thread has looked at its sockets.
#[test]
fn a_client_that_never_pauses_leaves_others_their_turns() {
    const PIECES: usize = 128;
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let looks = LocalSet::new().block_on(&runtime, async {
        let (server, mut client) = duplex(2 << 20);
        let mut server = TimedStream::new(server, patience(10 * SECOND, 4), 0);
        client.write_all(&[1; PIECES * 8192]).await.expect("there is room");
        let reads = spawn_local(async move {
            for _ in 0..PIECES {
                server.read_exact(&mut [0; 8192]).await.expect("there is more");
            }
        });
        let (mut near, mut far) = UnixStream::pair().expect("sockets");
        let mut looks = 0;
        while !reads.is_finished() && looks < 100 * PIECES {
            near.write_u8(1).await.expect("it is open");
            far.read_u8().await.expect("it is open");
            looks += 1;
        }
        looks
    });
    // More are none at all: the reader was left asleep.
    assert!((PIECES / 8..100 * PIECES).contains(&looks), "{looks}");
}
