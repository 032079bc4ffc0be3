//! `duovec adopt`: another server's vectors beside a package's. Each server here differs from the
//! package in one thing.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use actix_web::web::{self, Bytes};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, rt};
use testing::{joined, rows};

use super::support::*;

/// Serves a package with OpenVINO.
fn serve(package: &Broken, more: &[&str]) -> Server {
    let flags = [&["--engine", "openvino", "--log-level", "info"], more].concat();
    Server::ready(&mut quick("serve", package.path(), &flags))
}

/// Compares the tiny package with a server.
fn adopt(url: &str, more: &[&str]) -> Ended {
    adopt_by(&tiny(), url, more)
}

fn adopt_by(package: &Path, url: &str, more: &[&str]) -> Ended {
    let flags = [&["--engine", "openvino", "--from", url], more].concat();
    run(&mut quick("adopt", package, &flags))
}

/// The tiny package with more in its manifest, however far it misses its golden numbers then.
fn changed(more: &Value) -> Broken {
    let any = json!({"canary": {"tolerances": {"dense_cosine_min": 0}}});
    Broken::with(&joined(any, more))
}

/// What is said to differ.
fn differences(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter_map(|line| line.strip_prefix("differs: ")).collect()
}

#[test]
fn the_same_package_agrees_by_every_dialect() {
    let server = serve(&Broken::new(), &[]);
    for path in ["", "/embed", "/v1", "/v1/embeddings"] {
        let ended = adopt(&server.url(path), &["--least-cosine", "0.99999"]);
        assert_eq!(differences(ended.with_code(0)), [""; 0], "{path}");
        has(&ended.stdout, "least 1.000000, median 1.000000");
        let verdict = "all probes agree: an index that this server filled stays valid with the \
                       settings here, as far as probes can tell\n";
        assert!(ended.stdout.ends_with(verdict), "{}", ended.stdout);
        assert!(!ended.stdout.contains("cosine 0"), "{}", ended.stdout);
    }
}

/// More of the manifest here, more of the server's, the server's flags, and what is said to differ,
/// with `…` between its parts; FLAGS are those of the server.
const DIFFERENCES: &str = r#"
{} | QUERY | | prompt: here none, there "query: "…--query-prompt "query: ", its default prompt then
{} | {"pooling":"cls"} | | pooling: here mean, there cls; make the package anew with --pooling cls
{} | {"pooling":"last"} | | pooling: here mean, there last; make…with --pooling last
{} | {"max_input_tokens":32} | | tokens of a text: here 64, there 32; make…with --max-tokens 32
{} | {} | --tokenizer-normalization huggingface | tokenizer's…here sentencepiece, …; give FLAGS
{} | {} | --escape-special-tokens true | <s> and the…special tokens, there plain text; give FLAGS
QUERY | {} | | prompt: here "query: ", there none; give --default-prompt none
{"max_input_tokens":32} | {} | | tokens of a text: here 32, there more…with a greater --max-tokens
"#;
const QUERY: &str =
    r#"{"prompts":{"query":"query: ","passage":"passage: "},"default_prompt":"query"}"#;

#[test]
fn one_difference_at_a_time_is_found_and_named_with_its_cure() {
    let package = |more: &str| {
        changed(&serde_json::from_str(&more.replace("QUERY", QUERY)).expect("it is JSON"))
    };
    for [here, there, flags, expected] in rows(DIFFERENCES) {
        let expected = expected.replace("FLAGS", flags);
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let server = serve(&package(there), &flags);
        let ended = adopt_by(package(here).path(), &server.url(""), &[]);
        let found = differences(&ended);
        assert_eq!(found.len(), 1, "{}", ended.stdout);
        has(found[0], &expected);
        // Texts that are longer than the package takes here cannot be tried.
        let is_cured = !expected.contains("there more");
        let found = if is_cured { "all probes agree" } else { "still differ" };
        assert_says(&ended, 3, &format!("probes differ…{found}"));
        if !flags.is_empty() {
            adopt(&server.url(""), &flags).with_code(0);
        }
    }
}

/// A server of OpenAI's dialect alone, in front of another; `change` makes its answers to texts.
fn openai_only(
    behind: &Server,
    change: impl Fn(&Value, u16, Value) -> (u16, Value) + Clone + Send + 'static,
) -> String {
    let (url, (sender, address)) = (behind.url(""), mpsc::channel());
    let answer = move |request: HttpRequest, body: Bytes| {
        let (place, change) = (format!("{url}{}", request.path()), change.clone());
        async move {
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            let answer = match body.is_empty() {
                true => client().get(place).send().await,
                false => client().post(place).json(&asked).send().await,
            };
            let answer = answer.expect("the server behind answers");
            let (status, json) = (answer.status().as_u16(), answer.json().await.expect("JSON"));
            let (status, json) = match body.is_empty() {
                true => (status, json),
                false => change(&asked, status, json),
            };
            let status = actix_web::http::StatusCode::from_u16(status).expect("a status");
            HttpResponse::build(status).json(json)
        }
    };
    thread::spawn(move || {
        let app = move || App::new().route("/v1/{route}", web::to(answer.clone()));
        let server = HttpServer::new(app).workers(1).disable_signals();
        let server = server.bind("127.0.0.1:0").expect("a free port");
        sender.send(server.addrs()[0]).expect("the test waits");
        // It ends with the process of the tests.
        let _ = rt::System::new().block_on(server.run());
    });
    format!("http://{}", address.recv().expect("it listens"))
}

/// The numbers of an answer.
fn floats(json: &mut Value) -> &mut Vec<Value> {
    json["data"][0]["embedding"].as_array_mut().expect("a vector")
}

#[test]
fn vectors_of_other_lengths_and_sizes_are_told_apart_from_other_directions() {
    let server = serve(&Broken::new(), &[]);
    let picky = openai_only(&server, |asked, status, json| match asked["input"][0].as_str() {
        Some(text) if text.contains("cat") => (400, json!({"message": "no cats"})),
        _ => (status, json),
    });
    assert_says(&adopt(&picky, &[]), 1, "refuses a plain text: 400…no cats");
    let scaled = openai_only(&server, |_, status, mut json| {
        for number in floats(&mut json) {
            *number = (number.as_f64().expect("a number") * 2.5).into();
        }
        (status, json)
    });
    let ended = adopt(&scaled, &[]);
    let expected = "length of vectors (normalization): here 1, there 2.500 to 2.500; only a store \
                    that compares by cosine can take both";
    assert_eq!(differences(&ended), [expected], "{}{}", ended.stdout, ended.stderr);
    assert_says(&ended, 3, "the vectors have the same directions, and differ otherwise");

    let shorter = openai_only(&server, |_, status, mut json| {
        floats(&mut json).truncate(4);
        (status, json)
    });
    let ended = adopt(&shorter, &[]);
    let found = differences(&ended);
    assert!(found[0].starts_with("numbers of a vector: here 8, there 4; "), "{found:?}");

    let longer = openai_only(&server, |_, status, mut json| {
        floats(&mut json).push(0.5.into());
        (status, json)
    });
    let words = "vectors of 9 numbers, the package's have 8…another model";
    assert_says(&adopt(&longer, &[]), 1, words);
}

#[test]
fn a_prompt_that_nobody_knows_is_tried_when_it_is_named() {
    let package = changed(&json!({"prompts": {"query": "house of "}, "default_prompt": "query"}));
    let server = serve(&package, &[]);
    let here = changed(&json!({"sources": {"weights": "rounded to 4 bits"}}));
    let ended = adopt_by(here.path(), &server.url(""), &[]);
    let words = "no setting that was tried explains it…(here: rounded to 4 bits)…--prompt";
    assert_says(&ended, 3, words);
    let ended = adopt(&server.url(""), &["--prompt", "the ", "--prompt", "house of "]);
    let found = differences(&ended);
    assert!(found[0].starts_with("prompt: here none, there \"house of \"; "), "{found:?}");
}

#[test]
fn texts_that_the_server_refuses_are_named_and_not_compared() {
    let server = serve(&Broken::new(), &["--truncate", "false"]);
    let without_truncation = openai_only(&server, |_, status, json| (status, json));
    let refused = "not compared, the server refuses it: 65 tokens";
    has(&adopt(&without_truncation, &[]).with_code(0).stdout, refused);
    let ended = adopt(&without_truncation, &["--longest", "40"]);
    let left_out = "not compared: texts of more than 40 tokens (--longest)";
    assert!(ended.stdout.contains(left_out) && !ended.stdout.contains(refused), "{}", ended.stdout);

    let all = openai_only(&server, |_, _, _| (400, json!({"error": {"message": "no texts"}})));
    assert_says(&adopt(&all, &[]), 1, "embeds no text…/v1/embeddings: 400…no texts");
    let broken = openai_only(&server, |_, _, _| (200, json!({"data": []})));
    assert_says(&adopt(&broken, &[]), 1, "answers something else");
}

#[test]
fn wrong_addresses_keys_and_numbers_are_refused_in_a_sentence() {
    let folder = Folder::new();
    let server = serve(&Broken::new(), &["--api-key", "kept-1"]);
    let with_key = |path: &str, keys: &str| {
        folder.write("key", keys);
        let file = folder.path("key");
        adopt(&server.url(path), &["--from-key-file", file.to_str().expect("UTF-8")])
    };
    with_key("", "kept-1\n").with_code(0);
    assert_says(&adopt(&server.url(""), &[]), 1, "wants an API key…--from-key-file");
    assert_says(&with_key("", "kept-1\nkept-2\n"), 1, "one key on one line");
    let words = "wants an API key (401…the file of --from-key-file has another one";
    assert_says(&with_key("", "kept-2\n"), 1, words);
    let words = "embeds no text…/other/embed: 404…/other/v1/embeddings: 404";
    assert_says(&with_key("/other", "kept-1\n"), 1, words);
    // Told before the model is loaded: there is no library here.
    let unloaded = ["--openvino-library-dir", "/absent"];
    assert_says(&adopt("https://localhost", &unloaded), 1, "http://…tunnel");
    assert_says(
        &adopt("http://127.0.0.1:1", &unloaded),
        1,
        "cannot ask http://127.0.0.1:1/embed (is a server running there?)",
    );
    let ended = adopt(&server.url(""), &["--least-cosine", "2"]);
    has(&ended.with_code(2).stderr, "'2' for '--least-cosine");
}

/// A server that answers every request with `head` and then with `body` for ever.
fn hostile(head: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(head.as_bytes());
            while !body.is_empty() && stream.write_all(body.as_bytes()).is_ok() {}
        }
    });
    format!("http://{address}")
}

#[test]
fn a_server_that_means_harm_gets_neither_memory_nor_the_key_nor_the_terminal() {
    let endless = hostile("HTTP/1.1 200 OK\r\n\r\n[[", "0.123456789,0.123456789,0.123456789,");
    assert_says(&adopt(&endless, &[]), 1, "longer than 16 MiB");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = format!("http://{}/embed", other.local_addr().expect("it is bound"));
    let moved = format!("HTTP/1.1 307 Moved\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n");
    assert_says(&adopt(&hostile(moved.leak(), ""), &[]), 1, "307");
    other.set_nonblocking(true).expect("it is a socket");
    assert!(other.accept().is_err(), "nobody goes where the answer points");
    let colour = "HTTP/1.1 400 Bad\r\ncontent-length: 8\r\n\r\n\x1b[31mred";
    let ended = adopt(&hostile(colour, ""), &[]);
    assert!(ended.stderr.contains("[31mred") && !ended.stderr.contains('\x1b'), "{}", ended.stderr);
}
