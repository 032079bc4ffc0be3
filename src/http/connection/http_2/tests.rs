//! Tests of each wait, over streams in memory, with a clock that jumps to the next timer.

use std::future::pending;

use actix_service::fn_service;
use actix_web::HttpResponse;
use h2::client::{SendRequest, handshake};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};

use super::super::paused;
use super::*;
use crate::service::Door;
use settings::limits::MaxInflightBytes;

const SECOND: Duration = Duration::from_secs(1);
const HEAD_TIME: Duration = SECOND;
const WRITE_TIME: Duration = Duration::from_secs(3);
const IDLE_TIME: Duration = Duration::from_secs(75);
/// An answer that no window has room for.
const LARGE: usize = 1_000_000;
/// An answer that a window has room for, and the buffer of its stream.
const SMALL: usize = 60_000;

/// Serves one connection with an application that waits for a second and answers at length.
async fn serve_large(stream: DuplexStream, draining: impl Future<Output = ()>, door: Arc<Door>) {
    let application = fn_service(|request: Request| async move {
        sleep(SECOND).await;
        let length = if request.path() == "/small" { SMALL } else { LARGE };
        let mut answer = HttpResponse::Ok().body(vec![b'x'; length]);
        // Actix keeps the heads of answers for later ones; this one last answered HTTP/1.0.
        answer.head_mut().version = Version::HTTP_10;
        Ok::<_, HttpResponse>(answer)
    });
    let (dates, all_streams) = (&ServiceConfig::default(), &AllStreams::default());
    let timeouts =
        Timeouts { idle: IDLE_TIME, head: HEAD_TIME, write: WRITE_TIME, least_per_s: 100, door };
    let common = Common { all_streams, dates, timeouts };
    let _ = serve(stream, Rc::new(application), common, draining).await;
}

/// Runs `client` beside a server; what it gives, and how long the connection lasted.
fn run<F: Future>(
    draining: impl Future<Output = ()> + 'static,
    client: impl FnOnce(DuplexStream) -> F,
) -> (F::Output, Duration) {
    run_at(Door::new(MaxInflightBytes::DEFAULT), draining, client)
}

/// The same with a server whose memory is counted at `door`.
fn run_at<F: Future>(
    door: Arc<Door>,
    draining: impl Future<Output = ()> + 'static,
    client: impl FnOnce(DuplexStream) -> F,
) -> (F::Output, Duration) {
    let (server, stream) = duplex(64 * 1024);
    paused::run(async {
        let begin = now();
        let served = tokio::task::spawn_local(async move {
            serve_large(server, draining, door).await;
            now() - begin
        });
        let told = client(stream).await;
        (told, served.await.expect("no panic"))
    })
}

/// By the clock that jumps.
fn now() -> Instant {
    sleep(Duration::ZERO).deadline()
}

/// The drain begins after that time.
async fn after(time: Duration) {
    sleep(time).await;
}

async fn connect(stream: DuplexStream) -> SendRequest<Bytes> {
    let (send, connection) = handshake(stream).await.expect("HTTP/2");
    tokio::task::spawn_local(connection);
    send.ready().await.expect("it is open")
}

fn get() -> http::Request<()> {
    http::Request::get("https://localhost/").body(()).expect("valid")
}

/// Asks, and reads the whole answer; its length.
async fn read_answer(send: &mut SendRequest<Bytes>) -> usize {
    let (answer, _) = send.send_request(get(), true).expect("it is sent");
    let mut body = answer.await.expect("an answer").into_body();
    let mut length = 0;
    while let Some(chunk) = body.data().await {
        let chunk = chunk.expect("the answer is whole");
        body.flow_control().release_capacity(chunk.len()).expect("it was taken");
        length += chunk.len();
    }
    length
}

#[test]
fn a_connection_stays_open_when_the_head_of_an_answer_was_used_for_http_1_0() {
    let (lengths, lasted) = run(pending(), |stream| async move {
        let mut send = connect(stream).await;
        let first = read_answer(&mut send).await;
        sleep(SECOND).await;
        (first, read_answer(&mut send).await)
    });
    assert_eq!(lengths, (LARGE, LARGE));
    assert_eq!(lasted, SECOND * 3, "until the client leaves");
}

#[test]
fn a_client_that_does_not_begin_to_speak_is_closed() {
    let (answer, lasted) = run(pending(), |mut stream| async move {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.map(|_| ())
    });
    answer.expect("it is closed");
    assert_eq!(lasted.as_secs(), HEAD_TIME.as_secs());
}

#[test]
fn a_connection_without_requests_is_closed() {
    let (_send, lasted) = run(pending(), connect);
    assert_eq!(lasted.as_secs(), IDLE_TIME.as_secs());
}

#[test]
fn a_connection_without_requests_is_closed_the_sooner_the_less_memory_is_free() {
    let most = MaxInflightBytes::DEFAULT;
    let door = Door::new(most);
    let mut permit = door.enter(0).expect("it announces nothing");
    permit.hold(most.largest_request()).expect("it is the largest");
    let (_send, lasted) = run_at(door, pending(), connect);
    assert_eq!(lasted, IDLE_TIME / 4, "requests leave an eighth");
    let door = Door::new(most);
    let _others = door.count_beside(most.get() / 16 * 15 - NEW_BYTES);
    let (_send, lasted) = run_at(door, pending(), connect);
    assert_eq!(lasted, IDLE_TIME / 2, "connections leave a quarter of five quarters");
}

/// Sends so many bytes as there is room for them.
async fn send_body(mut stream: SendStream<Bytes>, mut left: usize) {
    while left > 0 {
        stream.reserve_capacity(left);
        let room = poll_fn(|context| stream.poll_capacity(context)).await;
        let part = room.expect("it is open").expect("it is open").min(left);
        stream.send_data(vec![b'x'; part].into(), false).expect("it is open");
        left -= part;
    }
}

#[test]
fn the_body_of_a_request_to_get_is_not_kept_while_the_request_runs() {
    let (took, _) = run(pending(), |stream| async move {
        let mut send = connect(stream).await;
        let begin = now();
        let mut answers = Vec::new();
        // What is kept of two fills the window of the connection.
        for method in [http::Method::GET, http::Method::HEAD, http::Method::GET] {
            let request = http::Request::builder().method(method).uri("https://localhost/small");
            let request = request.body(()).expect("valid");
            let (answer, body) = send.send_request(request, false).expect("it is sent");
            send_body(body, STREAM_WINDOW_BYTES as usize).await;
            answers.push(answer);
        }
        let took = now() - begin;
        for answer in answers {
            assert_eq!(answer.await.expect("an answer").status(), 200);
        }
        took
    });
    assert!(took < SECOND, "they are sent before the first answer: {took:?}");
}

#[test]
fn requests_have_less_memory_the_more_a_connection_takes() {
    let door = Door::new(MaxInflightBytes::nearest(256 * 1024));
    let (at, before) = (Arc::clone(&door), door.calm());
    let ((while_it_runs, behind_it), _) =
        run_at(Arc::clone(&door), pending(), |stream| async move {
            let mut send = connect(stream).await;
            let mut permit = at.enter(0).expect("it announces nothing");
            permit.hold(160 * 1024).expect("there is room");
            let (answer, _) = send.send_request(get(), true).expect("it is sent");
            let answer = answer.await.expect("an answer");
            let while_it_runs = at.calm();
            drop(answer);
            sleep(SECOND).await;
            (while_it_runs, at.calm())
        });
    assert!(while_it_runs < behind_it && behind_it < before, "{while_it_runs} {behind_it}");
    assert_eq!(door.calm(), before, "it is gone");
}

/// Why an answer was reset of which nothing that is read is given back.
async fn read_without_giving_room(mut body: RecvStream) -> Option<Reason> {
    loop {
        match body.data().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return error.reason(),
            None => return None,
        }
    }
}

#[test]
fn an_answer_without_room_in_its_window_resets_its_stream() {
    let (reason, lasted) = run(pending(), |stream| async move {
        let mut send = connect(stream).await;
        let (answer, _) = send.send_request(get(), true).expect("it is sent");
        read_without_giving_room(answer.await.expect("an answer").into_body()).await
    });
    assert_eq!(reason, Some(Reason::CANCEL));
    assert_eq!(lasted, SECOND + WRITE_TIME, "the client leaves then");
}

/// Reads an answer whose window is opened by `bytes` after each `pause`; how it ended, and how many
/// bytes of it had come.
fn read_slowly(bytes: usize, pause: Duration) -> (Option<Reason>, usize) {
    let ((reason, length), _) = run(pending(), |stream| async move {
        let mut send = connect(stream).await;
        let (answer, _) = send.send_request(get(), true).expect("it is sent");
        let mut body = answer.await.expect("an answer").into_body();
        let (mut length, mut kept) = (0, 0);
        loop {
            let next = tokio::time::timeout(pause, body.data()).await;
            match next {
                Ok(Some(Ok(chunk))) => {
                    length += chunk.len();
                    kept += chunk.len();
                }
                Ok(Some(Err(error))) => return (error.reason(), length),
                Ok(None) => return (None, length),
                Err(_) => {
                    let more = bytes.min(kept);
                    kept -= more;
                    body.flow_control().release_capacity(more).expect("they were taken");
                }
            }
        }
    });
    (reason, length)
}

#[test]
fn a_stream_whose_window_opens_slower_than_the_least_rate_is_reset() {
    let (reason, length) = read_slowly(100, SECOND * 2);
    assert_eq!(reason, Some(Reason::CANCEL), "50 bytes a second");
    assert!(length < LARGE, "{length}");
    assert_eq!(read_slowly(100_000, SECOND * 2), (None, LARGE), "it pauses, and is fast enough");
}

/// All of them are in the windows and the buffers of their streams, behind a socket that is full.
/// Then the client closes the windows and reads the socket empty.
#[test]
fn answers_whose_window_is_closed_behind_them_reset_their_streams() {
    const STREAMS: usize = 8;
    let (reasons, _) = run(pending(), |stream| async move {
        let (mut taken, mut given) = tokio::io::split(stream);
        let (inner, outer) = duplex(1024 * 1024);
        let (mut inner_read, mut inner_write) = tokio::io::split(inner);
        tokio::task::spawn_local(async move {
            let _ = tokio::io::copy(&mut inner_read, &mut given).await;
        });
        let (client, mut connection) = h2::client::Builder::new()
            .initial_connection_window_size(2 * LARGE as u32)
            .handshake::<_, Bytes>(outer)
            .await
            .expect("HTTP/2");
        // What the server sends is read for a moment, and then after the windows are closed.
        tokio::task::spawn_local(async move {
            let reading = tokio::io::copy(&mut taken, &mut inner_write);
            let _ = tokio::time::timeout(SECOND / 2, reading).await;
            sleep(SECOND * 3 / 2).await;
            let _ = tokio::io::copy(&mut taken, &mut inner_write).await;
        });
        let asking = async {
            let mut send = client.ready().await.expect("it is open");
            let mut answers = Vec::new();
            for _ in 0..STREAMS {
                send = send.ready().await.expect("it is open");
                let request = http::Request::get("https://localhost/small").body(());
                answers.push(send.send_request(request.expect("valid"), true).expect("sent").0);
            }
            sleep(SECOND * 3 / 2).await;
            answers
        };
        let answers = tokio::select! {
            answers = asking => answers,
            _ = &mut connection => unreachable!("it is open"),
        };
        connection.set_initial_window_size(0).expect("it is open");
        tokio::task::spawn_local(connection);
        let mut reasons = Vec::new();
        for answer in answers {
            let reason = async {
                match answer.await {
                    Ok(answer) => read_without_giving_room(answer.into_body()).await,
                    Err(error) => error.reason(),
                }
            };
            let reason = tokio::time::timeout(WRITE_TIME * 10, reason).await;
            reasons.push(reason.expect("no stream is left to itself"));
        }
        reasons
    });
    let reset = reasons.iter().filter(|reason| **reason == Some(Reason::CANCEL)).count();
    assert!(reset >= STREAMS / 2, "{reasons:?}");
}

/// A stream whose other end takes a byte after each second.
#[test]
fn a_socket_of_http_2_that_drains_by_the_byte_is_closed() {
    let (_, lasted) = run(pending(), |stream| async move {
        let (mut taken, given) = tokio::io::split(stream);
        let (inner, mut outer) = duplex(64 * 1024);
        let (mut inner_read, mut inner_write) = tokio::io::split(inner);
        // What the client sends goes through; what the server sends comes by the byte.
        let mut given = given;
        tokio::task::spawn_local(async move {
            let _ = tokio::io::copy(&mut inner_read, &mut given).await;
        });
        let slow = tokio::task::spawn_local(async move {
            // The head and the first part of the answer come at once.
            for _ in 0..100_000 {
                let Ok(byte) = taken.read_u8().await else { return };
                if inner_write.write_u8(byte).await.is_err() {
                    break;
                }
            }
            loop {
                sleep(SECOND).await;
                if taken.read_u8().await.is_err() {
                    return;
                }
            }
        });
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(2 * LARGE as u32)
            .initial_connection_window_size(2 * LARGE as u32)
            .handshake::<_, Bytes>(&mut outer)
            .await
            .expect("HTTP/2");
        let mut send = send.ready().await.expect("it is open");
        let (answer, _) = send.send_request(get(), true).expect("it is sent");
        tokio::select! {
            _ = connection => {}
            _ = async { (answer.await, std::future::pending::<()>().await) } => {}
            _ = slow => {}
        }
    });
    assert!(lasted < SECOND * 20, "{lasted:?}");
}

/// A request whose head takes some kilobytes, though later ones are short on the wire.
fn get_with_head(value: &str) -> http::Request<()> {
    let request = http::Request::get("https://localhost/");
    request.header("x-long", value).body(()).expect("valid")
}

#[test]
fn heads_that_take_the_memory_of_a_connection_are_refused_by_the_protocol() {
    let ((answered, refused), _) = run(pending(), |stream| async move {
        let mut send = connect(stream).await;
        let value = "v".repeat(3900);
        let mut answers = Vec::new();
        for _ in 0..100 {
            let mut request = get_with_head(&value);
            for number in 1..4 {
                let name = http::HeaderName::try_from(format!("x-{number}")).expect("a name");
                request.headers_mut().insert(name, value.parse().expect("a value"));
            }
            send = send.ready().await.expect("it is open");
            answers.push(send.send_request(request, true).expect("it is sent").0);
        }
        let (mut answered, mut refused) = (0, 0);
        for answer in answers {
            match answer.await {
                Ok(_) => answered += 1,
                Err(error) if error.reason() == Some(Reason::REFUSED_STREAM) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        (answered, refused)
    });
    assert_eq!(answered + refused, 100);
    assert!((30..50).contains(&answered), "{answered} heads of 16 kB were in memory at once");
}

#[test]
fn a_head_above_16_kib_is_431() {
    let (status, _) = run(pending(), |stream| async move {
        let mut send = connect(stream).await;
        let request = get_with_head(&"v".repeat(16 * 1024));
        let (answer, _) = send.send_request(request, true).expect("it is sent");
        answer.await.expect("an answer").status().as_u16()
    });
    assert_eq!(status, 431);
}

#[test]
fn a_client_that_does_not_leave_when_told_to_is_closed() {
    let (_stream, lasted) = run(after(SECOND * 5), |mut stream| async move {
        let client = handshake(&mut stream).await.expect("HTTP/2");
        // Its side is driven no further.
        drop(client);
        sleep(SECOND * 20).await;
        stream
    });
    assert_eq!(lasted.as_secs(), 5 + GOAWAY_TIMEOUT.as_secs());
}
