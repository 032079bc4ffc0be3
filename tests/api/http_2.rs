//! HTTP/2: many requests on one connection, clients that leave or take requests back, and caps.

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};

use crate::http_2_client::{self, head};
use crate::log;
use crate::support::*;
use crate::tls::{Secure, embed, read};

/// As many streams as a connection may have, by the server's word.
const STREAMS_MAX: usize = 128;

/// A request with this id, whose answer is not waited for.
fn begin(send: &mut SendRequest<Bytes>, id: &str) -> (ResponseFuture, SendStream<Bytes>) {
    http_2_client::begin(send, head(DENSE, &[("x-request-id", id)]), TEXT)
}

#[test]
fn the_streams_of_a_connection_are_capped_and_more_are_refused_by_the_protocol() {
    let secure = Secure::new();
    secure.server.hold();
    let stream = secure.open();
    let outcomes = secure.runtime.block_on(async {
        // As if the server had not told its cap: that is how a client begins.
        let mut builder = h2::client::Builder::new();
        builder.initial_max_send_streams(1000);
        let (mut send, connection) = builder.handshake::<_, Bytes>(stream).await.expect("HTTP/2");
        let begun: Vec<_> = (0..STREAMS_MAX + 50).map(|_| begin(&mut send, "many")).collect();
        tokio::spawn(connection);
        secure.wait("the cap is reached", || secure.server.waiting() >= STREAMS_MAX).await;
        let answers: Vec<_> = begun.into_iter().map(|(answer, _)| tokio::spawn(answer)).collect();
        // They come before any answer.
        let refused = || answers.iter().filter(|answer| answer.is_finished()).count() >= 50;
        secure.wait("others are refused", refused).await;
        assert!(secure.server.waiting() <= STREAMS_MAX, "{}", secure.server.waiting());
        secure.server.release();
        join_all(answers).await
    });
    let (answered, refused): (Vec<_>, Vec<_>) =
        outcomes.into_iter().map(|answer| answer.expect("no panic")).partition(Result::is_ok);
    assert_eq!((answered.len(), refused.len()), (STREAMS_MAX, 50));
    for error in refused.into_iter().filter_map(Result::err) {
        assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
    }
}

#[test]
fn a_stream_that_is_reset_leaves_the_queue_and_the_log_says_so() {
    log::listen();
    let secure = Secure::new();
    secure.server.hold();
    let mut send = secure.http_2();
    secure.runtime.block_on(async {
        let (_answer, mut taken_back) = begin(&mut send, "http-2-reset");
        let stays = embed(&send);
        let reset = async {
            secure.wait("both wait", || secure.server.waiting() == 2).await;
            taken_back.send_reset(Reason::CANCEL);
            secure.wait("one is gone", || secure.server.waiting() == 1).await;
            secure.server.release();
        };
        assert_eq!(tokio::join!(stays, reset).0, 200, "others of the connection are answered");
    });
    let line = log::line("http-2-reset");
    assert!(line["fields"]["message"].as_str().is_some_and(|text| text.contains("left")));
}

#[test]
fn rapid_resets_run_no_more_than_the_cap_at_once() {
    let secure = Secure::new();
    secure.server.hold();
    let mut send = secure.http_2();
    let most = std::cell::Cell::new(0);
    secure.runtime.block_on(async {
        let before = secure.server.accepted();
        for round in 1..=20 {
            let begun: Vec<_> = (0..50).map(|_| begin(&mut send, "rapid")).collect();
            let come = || {
                most.set(most.get().max(secure.server.waiting()));
                secure.server.accepted() >= before + round * 50
            };
            secure.wait("the requests of a round come", come).await;
            // These resets and the next requests leave together.
            for (_, mut stream) in begun {
                stream.send_reset(Reason::CANCEL);
            }
        }
        secure.wait("what was taken back is gone", || secure.server.waiting() == 0).await;
        secure.server.release();
        assert_eq!(embed(&send).await, 200);
    });
    assert!(most.get() <= STREAMS_MAX, "{} requests waited at once", most.get());
}

#[test]
fn an_http_2_client_that_leaves_takes_its_items_out_of_the_queue() {
    let secure = Secure::new();
    secure.server.hold();
    let send = secure.http_2();
    secure.runtime.block_on(async {
        let request = embed(&send);
        tokio::select! {
            _ = request => panic!("it is held"),
            () = async {
                secure.wait("the request waits", || secure.server.waiting() == 1).await;
            } => {}
        }
    });
    let Secure { server, runtime, .. } = secure;
    drop(send);
    drop(runtime);
    server.wait_waiting(0);
}

#[test]
fn bodies_and_answers_larger_than_every_window_come_whole() {
    let secure = Secure::set(|set| set.http.max_items = number(8192));
    let mut send = secure.http_2();
    let items = r#""x","#.repeat(8000);
    let padding = " ".repeat(5_000_000);
    let text = format!(r#"{{"input":[{items}"x"],{padding}"encoding_format":"float"}}"#);
    let (head, length) = secure.runtime.block_on(async {
        let (answer, _) = http_2_client::begin(&mut send, head(BOTH, &[]), text);
        read(answer).await
    });
    assert_eq!(head.status.as_u16(), 200);
    assert!(head.headers.contains_key("date"), "{:?}", head.headers);
    assert!(length > 1_000_000, "{length}");
}

#[test]
fn an_answer_of_a_server_that_drains_tells_the_client_to_leave() {
    let secure = Secure::new();
    let stream = secure.open();
    secure.runtime.block_on(async {
        let (mut send, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let ended = tokio::spawn(connection);
        secure.server.drain();
        let mut head = head("/health", &[]);
        *head.method_mut() = Method::HEAD;
        let (answer, _) = send.send_request(head, true).expect("it is sent");
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 503);
        assert!(answer.into_body().data().await.is_none(), "HEAD has no body");
        let ended = tokio::time::timeout(PATIENCE, ended).await.expect("the server closes it");
        // What the client still writes may find the connection closed.
        let _ = ended.expect("no panic");
    });
}
