//! A start that cannot succeed ends with one sentence that says what and where, and not with 0.

use std::fs;
use std::net::TcpListener;

use super::support::{Broken, Ended, Server, assert_says, duovec, run, tiny};

fn check(package: &Broken) -> Ended {
    run(duovec().args(["check", "--log-level", "error"]).arg(package.path()))
}

#[test]
fn an_unknown_flag_is_named() {
    let ended = run(duovec().args(["serve", "--max-itmes", "3"]));
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--max-itmes"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--max-items"), "a similar one is named: {}", ended.stderr);
}

#[test]
fn every_wrong_setting_is_reported_at_once() {
    let ended = run(duovec()
        .args(["serve", "--port", "http", "--workers", "0"])
        .env("DUOVEC_ENGINE", "abacus"));
    assert_eq!(ended.code, Some(2));
    for word in ["--port", "--workers", "DUOVEC_ENGINE", "abacus"] {
        assert!(ended.stderr.contains(word), "'{word}' is not in: {}", ended.stderr);
    }
}

/// More would end the HTTP side with a panic.
#[test]
fn more_http_threads_than_can_be_had_are_a_usage_error_with_the_range() {
    let ended = run(duovec().args(["check", "--config", "--http-threads", "600"]));
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(ended.stderr.contains("--http-threads: 600 is outside 1 to 512"), "{}", ended.stderr);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let package = tiny();
    let ended = run(duovec()
        .args(["serve", "--engine", "fake", "--log-level", "error", "--port", &port, "--package"])
        .arg(package));
    assert_says(&ended, 1, &["cannot listen on 127.0.0.1:", &port, "already in use", "--port"]);
}

#[test]
fn a_default_prompt_that_the_package_lacks_is_refused_and_check_tells_the_one_there_is() {
    for (command, package) in [("check", None), ("serve", Some("--package"))] {
        let mut duovec = duovec();
        duovec.args([command, "--engine", "fake", "--default-prompt", "query"]);
        duovec.args(["--log-level", "error"]).args(package).arg(tiny());
        assert_says(&run(&mut duovec), 1, &["has no prompt for --default-prompt query", "none"]);
    }
    let package = Broken::new();
    package.manifest(|manifest| {
        manifest["prompts"] = serde_json::json!({"query": "query: ", "passage": "passage: "});
        manifest["default_prompt"] = "query".into();
    });
    for (flags, prompt) in [
        (&[][..], "query"),
        (&["--default-prompt", "none"], "none"),
        (&["--default-prompt", "passage"], "passage"),
    ] {
        let mut duovec = duovec();
        duovec.args(["check", "--engine", "fake", "--log-level", "error"]).args(flags);
        let ended = run(duovec.arg(package.path()));
        assert!(ended.stdout.contains(&format!("default prompt: {prompt}")), "{}", ended.stdout);
    }
}

#[test]
fn eight_bits_without_their_graph_are_refused_and_say_how_to_make_one() {
    for precision in ["int8", "fp8"] {
        let ended = run(duovec()
            .args(["check", "--engine", "fake", "--precision", precision, "--log-level", "error"])
            .arg(tiny()));
        let folder = tiny();
        let command = format!(
            "scripts/quantize_package.py --precision {precision} --package {}",
            folder.display()
        );
        assert_says(&ended, 1, &["has no graph in 8 bits", &command]);
    }
}

#[test]
fn a_file_without_api_keys_is_named_before_the_model_is_loaded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys.txt");
    let serve = || {
        let mut duovec = duovec();
        duovec.args(["serve", "--engine", "fake", "--log-level", "error", "--port", "0"]);
        run(duovec.arg("--package").arg(tiny()).arg("--api-key-file").arg(&path))
    };
    assert_says(&serve(), 1, &["keys.txt", "cannot read", "No such file"]);
    fs::write(&path, "# none yet\n").expect("it is written");
    assert_says(&serve(), 1, &["keys.txt", "no API key"]);
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
        let mut duovec = duovec();
        duovec.args(["serve", "--engine", "fake", "--port", "0", "--host", host, "--package"]);
        run(duovec.arg(package.path()).args(flags)).stderr
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
        let open = log.contains(everyone) && log.contains("WARN");
        assert_eq!(open, said == everyone, "{host}: {log}");
    }
}

#[test]
fn a_bad_certificate_or_key_is_named_before_the_model_is_loaded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let serve = || {
        let mut duovec = duovec();
        duovec.args(["serve", "--engine", "fake", "--log-level", "error", "--port", "0"]);
        duovec.arg("--package").arg(tiny());
        run(duovec.arg("--tls-cert").arg(&cert).arg("--tls-key").arg(&key))
    };
    let pair = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a pair");
    assert_says(&serve(), 1, &["cert.pem", "cannot read", "No such file"]);
    fs::write(&cert, pair().cert.pem()).expect("it is written");
    fs::write(&key, pair().signing_key.serialize_pem()).expect("it is written");
    assert_says(&serve(), 1, &["cert.pem", "key.pem", "is not that of the certificate"]);
}

#[test]
fn a_directory_without_a_package_is_named() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    for command in ["serve", "check"] {
        let mut duovec = duovec();
        duovec.args([command, "--log-level", "error"]);
        if command == "serve" {
            duovec.args(["--port", "0", "--package"]);
        }
        let ended = run(duovec.arg(empty.path()));
        let place = empty.path().to_string_lossy().into_owned();
        assert_says(&ended, 1, &[&place, "there is no manifest.json", "--package"]);
    }
}

#[test]
fn a_missing_or_changed_file_is_named() {
    let missing = Broken::new();
    fs::remove_file(missing.file("model.onnx")).expect("it was there");
    assert_says(&check(&missing), 1, &["model.onnx is missing"]);

    let shorter = Broken::new();
    fs::write(shorter.file("tokenizer.json"), "{}").expect("it is written");
    assert_says(&check(&shorter), 1, &["tokenizer.json has 2 bytes"]);

    let flipped = Broken::new();
    let mut bytes = fs::read(flipped.file("model.onnx")).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(flipped.file("model.onnx"), bytes).expect("it is written");
    assert_says(&check(&flipped), 1, &["model.onnx has SHA-256", "the manifest says"]);
}

#[test]
fn a_manifest_that_cannot_be_read_is_named() {
    let broken = Broken::new();
    fs::write(broken.file("manifest.json"), "{").expect("it is written");
    assert_says(&check(&broken), 1, &["manifest.json", "EOF"]);

    let other = Broken::new();
    other.manifest(|manifest| manifest["format_version"] = 9.into());
    assert_says(&check(&other), 1, &["format_version is 9"]);
}

#[test]
fn a_graph_that_is_no_onnx_is_named() {
    let truncated = Broken::new();
    let bytes = fs::read(truncated.file("model.onnx")).expect("it is there");
    truncated.replace("model.onnx", &bytes[..bytes.len() / 2]);
    assert_says(&check(&truncated), 1, &["model.onnx", "not a graph OpenVINO can read"]);

    let empty = Broken::new();
    empty.replace("model.onnx", b"");
    assert_says(&check(&empty), 1, &["model.onnx"]);

    let text = Broken::new();
    text.replace("model.onnx", b"this is a text");
    assert_says(&check(&text), 1, &["model.onnx"]);
}

#[test]
fn tensors_that_do_not_fit_the_manifest_are_named() {
    for output in ["dense", "token_weights"] {
        let package = Broken::new();
        package.manifest(|manifest| manifest["outputs"][output] = "float16".into());
        let expected = format!("output '{output}' is F32 of rank");
        assert_says(&check(&package), 1, &["model.onnx", &expected]);
    }
}

#[test]
fn a_package_of_the_first_format_is_refused_with_the_command_that_makes_it_anew() {
    let package = Broken::new();
    package.manifest(|manifest| manifest["format_version"] = 1.into());
    assert_says(&check(&package), 1, &["format_version is 1", "scripts/export_onnx.py"]);
}

#[test]
fn a_tokenizer_of_another_vocabulary_is_named() {
    let package = Broken::new();
    package.manifest(|manifest| manifest["vocab_size"] = 444.into());
    assert_says(&check(&package), 1, &["tokenizer.json", "443", "444", "vocabular"]);
}

#[test]
fn a_model_that_misses_its_golden_numbers_is_refused() {
    let package = Broken::new();
    package.manifest(|manifest| {
        let dense = manifest["canary"]["dense"].as_array_mut().expect("a list");
        dense.reverse();
    });
    assert_says(&check(&package), 1, &["golden numbers", "dense cosine"]);
}

#[test]
fn a_folder_without_openvino_is_named() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let ended = run(duovec()
        .args(["check", "--log-level", "error", "--openvino-library-dir"])
        .arg(empty.path())
        .arg(tiny()));
    let place = empty.path().to_string_lossy().into_owned();
    assert_says(&ended, 1, &[&place, "libopenvino_c.so", "--openvino-library-dir"]);
}

#[test]
fn a_whole_package_passes_the_check() {
    let ended = run(duovec().args(["check", "--log-level", "error"]).arg(tiny()));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("is whole: tiny-test"), "{}", ended.stdout);
}

#[test]
fn a_server_with_a_bad_package_exits_instead_of_loading_for_ever() {
    let package = Broken::new();
    package.replace("model.onnx", b"this is a text");
    let place = package.path().to_string_lossy().into_owned();
    let server = Server::start(&["--package", &place]);
    assert_eq!(server.wait().code(), Some(1));
}
