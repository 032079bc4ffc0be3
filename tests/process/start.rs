//! A start that cannot succeed ends with one sentence that says what and where, and not with 0.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use super::support::*;

/// What the check says of a package, with the real engine.
fn check(package: &Broken) -> Ended {
    run(&mut quick("check", package.path(), &["--engine", "openvino"]))
}

#[test]
fn wrong_flags_and_values_are_all_named_at_once_with_what_is_right() {
    let serve = ["serve", "--port", "http", "--workers", "0"];
    let config = ["check", "--config", "--http-threads", "600"];
    let all = "--port…--workers…DUOVEC_ENGINE…abacus…nothing reads DUOVEC_MAXITEMS";
    for (arguments, words) in [
        (&["serve", "--max-itmes", "3"][..], "--max-itmes…--max-items"),
        (&serve, all),
        // More would end the HTTP side with a panic.
        (&config, "--http-threads: 600 is outside 1 to 512"),
        (&["check", "--config", "--port", "http", "--workers", "0"], "--port…--workers"),
        // A flag of `serve` needs the configuration.
        (&["check", "--port", "8080"], "--config…without it, check verifies a package"),
        (&["embed", "--port", "1", "in.txt"], "--port is a setting of `duovec serve`"),
        (&["bench", "here", "--package", "there"], "[PACKAGE]…--package"),
        // Only the wheel's command takes these.
        (&["serve", "--model", "a/b"], "'--model'…scripts/export_onnx.py --model NAME"),
        (&["embed", "--model=a/b", "in.txt"], "'--model'…scripts/export_onnx.py --model"),
        (&["pull", "a/b"], "'pull'…scripts/export_onnx.py --model NAME"),
    ] {
        let mut command = duovec();
        command.args(arguments);
        if words == all {
            command.env("DUOVEC_ENGINE", "abacus").env("DUOVEC_MAXITEMS", "5");
        }
        let ended = run(&mut command);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{arguments:?}");
        has(&ended.stderr, words);
    }
}

#[test]
fn a_start_that_cannot_succeed_says_why_before_the_model_is_loaded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name| folder.path().join(name).to_string_lossy().into_owned();
    let [absent, empty, blank] = ["absent", "empty", "blank"].map(path);
    let place = folder.path().to_string_lossy();
    fs::write(&empty, "# none yet\n").expect("it is written");
    fs::write(&blank, "\n").expect("it is written");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let broken = Broken::new();
    broken.replace("model.onnx", b"this is a text");
    let (tiny, here, broken) = (tiny(), folder.path(), broken.path());
    let unread = "absent…cannot read…No such file";
    let prompt = "has no prompt for --default-prompt query…none";
    let listen = format!("cannot listen…{port}…already in use…--port");
    let no_package = format!("{place}…there is no manifest.json…--package");
    let no_folder = "/nowhere…no such folder…DUOVEC_PACKAGE…with --model NAME";
    let no_shape = "no shape holds 1x99…up to 64 tokens…--max-batch-tokens";
    let keys_unread = "absent, of --api-key-file…No such file";
    type Case<'a> = (&'a str, &'a Path, &'a [&'a str], &'a str);
    // Loading would fail.
    let unloaded = ["--engine", "openvino", "--openvino-library-dir", &place];
    let cases: [Case<'_>; 21] = [
        ("serve", &tiny, &["--port", &port], &listen),
        // Of a network that is for examples only.
        ("serve", &tiny, &["--host", "192.0.2.1"], "Cannot assign…--host…of this machine"),
        ("serve", &tiny, &["--api-key-file", &absent], keys_unread),
        ("serve", &tiny, &["--api-key-file", &empty], "empty…no API key"),
        ("serve", &tiny, &["--tls-cert", &absent, "--tls-key", &absent], unread),
        ("serve", &tiny, &["--default-prompt", "query"], prompt),
        ("check", &tiny, &["--default-prompt", "query"], prompt),
        ("check", &tiny, &["--precision", "int8"], "in 8 bits…package.py --precision int8"),
        ("check", &tiny, &["--precision", "fp8"], "in 8 bits…package.py --precision fp8"),
        ("serve", here, &["--port", "0"], &no_package),
        ("check", here, &[], &no_package),
        ("check", Path::new("/nowhere"), &[], no_folder),
        ("check", Path::new(&blank), &[], "blank is not a package…no such folder"),
        ("serve", broken, &["--port", "0", "--engine", "openvino"], "model.onnx"),
        ("check", &tiny, &unloaded, "libopenvino_c.so…--openvino-library-dir or DUOVEC_OPENVINO"),
        ("bench", &tiny, &[&["--texts", &absent], &unloaded[..]].concat(), unread),
        ("bench", &tiny, &[&["--texts", &blank], &unloaded[..]].concat(), "blank has no text"),
        ("bench", &tiny, &["--compare-graphs"], "--compare-graphs needs TensorRT on a GPU"),
        ("bench", &tiny, &["--shapes", "8"], "'8' is not ROWSxLENGTH, such as 1x32"),
        ("bench", &tiny, &["--shapes", "0x8"], "'0x8' is not ROWSxLENGTH"),
        ("bench", &tiny, &["--shapes", "1x99"], no_shape),
    ];
    for (command, package, flags, words) in cases {
        let ended = run(&mut quick(command, package, flags));
        println!("{command} {flags:?}");
        assert_says(&ended, 1, words);
        assert!(command != "bench" || ended.stdout.is_empty(), "nothing is measured before");
    }
}

#[test]
fn a_check_tells_the_default_prompt() {
    let prompts = json!({"query": "query: ", "passage": "passage: "});
    let package = Broken::with(&json!({"prompts": prompts, "default_prompt": "query"}));
    for (flags, prompt) in [
        (&[][..], "query"),
        (&["--default-prompt", "none"], "none"),
        (&["--default-prompt", "passage"], "passage"),
    ] {
        let ended = run(&mut quick("check", package.path(), flags));
        has(&ended.stdout, &format!("default prompt: {prompt}"));
    }
}

/// The model is missing, so that each of these processes ends.
#[test]
fn a_start_says_how_many_keys_there_are_or_that_everyone_may_use_the_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys.txt");
    fs::write(&path, "from-the-file\n").expect("it is written");
    let package = Broken::new();
    fs::remove_file(package.file("model.onnx")).expect("it was there");
    let log = |host: &str, flags: &[&str]| {
        let more = [&["--port", "0", "--host", host, "--log-level", "info"], flags].concat();
        run(&mut quick("serve", package.path(), &more)).stderr
    };
    let file = path.to_str().expect("it is UTF-8");
    let keys = ["--api-key", "kept-1", "--api-key", "kept-2", "--api-key-file", file];
    let everyone = "everyone who reaches this address may use the server";
    for (host, flags, said) in [
        ("127.0.0.1", &keys[..], "api_keys=3"),
        ("0.0.0.0", &keys[..], "api_keys=3"),
        ("0.0.0.0", &keys[4..], "api_keys=1"),
        ("127.0.0.1", &[], "api_keys=0"),
        ("0.0.0.0", &[], everyone),
    ] {
        let log = log(host, flags);
        assert_eq!(log.matches(said).count(), 1, "{host}, {said}: {log}");
        assert!(log.contains("remove its folder and start again"), "{log}");
        let open = log.contains(everyone) && log.contains("WARN");
        assert_eq!(open, said == everyone, "{host}: {log}");
    }
}

#[test]
fn what_is_missing_changed_or_computes_otherwise_is_named_and_refused() {
    let read = |package: &Broken| fs::read(package.file("model.onnx")).expect("it is there");
    let write = |name: &'static str, text: &'static str| {
        move |package: &Broken| fs::write(package.file(name), text).expect("it is written")
    };
    let with = |more: Value| move |package: &Broken| package.say(&more);
    let remove = |package: &Broken| fs::remove_file(package.file("model.onnx")).expect("it was");
    let flip = |package: &Broken| {
        let mut bytes = read(package);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(package.file("model.onnx"), bytes).expect("it is written");
    };
    let cut = |package: &Broken| {
        let bytes = read(package);
        package.replace("model.onnx", &bytes[..bytes.len() / 2]);
    };
    let empty = |package: &Broken| package.replace("model.onnx", b"");
    let text = |package: &Broken| package.replace("model.onnx", b"this is a text");
    let turn = |package: &Broken| {
        package.manifest(|all| all["canary"]["dense"].as_array_mut().expect("a list").reverse());
    };
    let dense = with(json!({"outputs": {"dense": "float16"}}));
    let weights = with(json!({"outputs": {"token_weights": "float16"}}));
    type Fault<'a> = (&'a dyn Fn(&Broken), &'a str);
    let faults: [Fault<'_>; 13] = [
        (&remove, "model.onnx is missing…remove its folder and start again"),
        (&write("tokenizer.json", "{}"), "tokenizer.json has 2 bytes…remove its folder"),
        (&flip, "model.onnx has SHA-256…the manifest says…remove its folder"),
        (&write("manifest.json", "{"), "manifest.json…EOF"),
        (&with(json!({"format_version": 9})), "format_version is 9"),
        // With the command that makes it anew.
        (&with(json!({"format_version": 1})), "format_version is 1…scripts/export_onnx.py"),
        (&cut, "model.onnx…not a graph OpenVINO can read"),
        (&empty, "model.onnx"),
        (&text, "model.onnx"),
        (&dense, "model.onnx…output 'dense' is F32 of rank"),
        (&weights, "model.onnx…output 'token_weights' is F32 of rank"),
        (&turn, "golden numbers…dense cosine"),
        (&with(json!({"vocab_size": 444})), "tokenizer.json…443…444…vocabular"),
    ];
    for (fault, words) in faults {
        let package = Broken::new();
        fault(&package);
        assert_says(&check(&package), 1, words);
    }
}

#[tokio::test]
async fn a_model_without_prompts_says_that_input_type_is_ignored() {
    let prompts = Broken::with(&json!({"prompts": {"query": "query: "}}));
    for (package, ignored) in [(Broken::new(), Some("ignored")), (prompts, None)] {
        let server = Server::ready(&mut quick("serve", package.path(), &["--log-level", "info"]));
        for (path, body, expected) in [
            ("/v1/embeddings", json!({"input": "cat", "input_type": "query"}), ignored),
            ("/v1/embeddings:both", json!({"input": "cat", "model": "tiny-query"}), ignored),
            ("/embed", json!({"inputs": "cat", "prompt_name": "query"}), ignored),
            ("/v1/embeddings", json!({"input": "cat"}), None),
            ("/embed_sparse", json!({"inputs": "cat"}), None),
            ("/v1/rerank", json!({"query": "cat", "documents": ["dog"]}), None),
        ] {
            let answer = client().post(server.url(path)).json(&body).send().await;
            let answer = answer.expect("an answer");
            assert_eq!(answer.status(), 200, "{body}");
            let header = answer.headers().get("x-input-type");
            let header = header.map(|value| value.to_str().expect("ASCII"));
            assert_eq!(header, expected, "{path} {body}");
        }
    }
}

#[test]
fn a_whole_package_passes_the_check_which_tells_what_was_taken_from_where() {
    let ended = run(&mut quick("check", tiny(), &["--engine", "openvino"]));
    let lines = [
        "is whole: tiny-test",
        "ok    names: tiny-test, tiny\n",
        "ok    pooling: mean\n",
        "ok    dimensions: 4, 8\n",
        "ok    prompts: none, so that input_type changes nothing\n",
    ];
    has(&ended.with_code(0).stdout, &lines.join("…"));
    let package = Broken::with(&json!({
        "prompts": {"query": "query: ", "passage": ""},
        "sources": {
            "pooling": "1_Pooling/config.json, pooling_mode", "max_input_tokens": "--max-tokens",
            "prompts": "--query-prompt", "weights": "rounded to 4 bits",
        },
        "largest": {
            "texts": 160, "scores": [4.36, 2.0], "feed_forward": [25.7], "values": [6.75],
            "other": [10.5],
        },
    }));
    let lines = [
        "ok    pooling: mean (1_Pooling/config.json, pooling_mode)\n",
        "ok    tokens of a text: 64 (--max-tokens)\n",
        "ok    prompts: query \"query: \", passage \"\" (--query-prompt)\n",
        "ok    lexical weights: fixed numbers, for tests\n",
        "ok    weights: rounded to 4 bits\n",
        "ok    largest numbers: scores 4.36, feed-forward 25.7, values 6.75, others 10.5 over 160",
    ];
    has(&check(&package).stdout, &lines.join("…"));
}
