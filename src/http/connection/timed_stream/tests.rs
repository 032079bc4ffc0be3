//! Tests of the time that a client has, over streams in memory, with a clock that jumps to the next
//! timer.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::sleep;

use super::super::paused::run;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A client with ten seconds and a least rate of four bytes a second takes a byte after each
/// `pause`; how the 64 bytes that wait for it end.
fn written_to_one_who_takes_a_byte_after(pause: Duration) -> io::Result<()> {
    run(async {
        let (server, mut client) = duplex(64);
        let mut server = TimedStream::new(server, Patience::new(10 * SECOND, 4));
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
        let mut server = TimedStream::new(server, Patience::new(10 * SECOND, 4));
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
        let mut server = TimedStream::new(server, Patience::new(SECOND, 0));
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
