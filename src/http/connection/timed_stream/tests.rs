//! Tests of the time-out, over streams in memory, with a clock that jumps to the next timer.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_answer_that_is_not_taken_ends_the_connection_and_a_slow_reader_does_not() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let (server, mut client) = duplex(64);
        let mut server = TimedStream::new(server, SECOND);
        server.write_all(&[1; 64]).await.expect("there is room");
        let slow = async {
            for _ in 0..64 {
                sleep(SECOND * 9 / 10).await;
                client.read_u8().await.expect("a byte");
            }
        };
        let (written, ()) = tokio::join!(server.write_all(&[2; 64]), slow);
        written.expect("each byte gives more time");
        let stuck = server.write_all(&[3; 64]).await.expect_err("nobody reads");
        assert_eq!(stuck.kind(), ErrorKind::TimedOut);
    });
}
