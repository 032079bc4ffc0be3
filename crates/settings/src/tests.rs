//! Tests of precedence, of every default, and of the report of all problems at once.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::raw::RawConfig;
use super::table::SETTINGS;
use super::{
    Config, Dialect, LogFormat, Normalization, OptimizeFor, SpecialTokenText, TlsFiles, TokenInput,
};
use crate::limits::Workers;

fn flags(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
    let mut flags: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for &(name, value) in pairs {
        flags.entry(name.to_owned()).or_default().push(value.to_owned());
    }
    flags
}

fn resolve(
    flag_pairs: &[(&str, &str)],
    variables: &[(&str, &str)],
    file: Option<&Path>,
) -> Result<Config, Vec<String>> {
    let environment = variables.iter().map(|(name, value)| (name.to_string(), value.into()));
    let raw = RawConfig::gather(flags(flag_pairs), environment.collect(), file);
    Config::resolve(&raw).map_err(|error| error.0.iter().map(ToString::to_string).collect())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("it is written");
    file
}

#[test]
fn typing_a_default_changes_nothing() {
    let untyped = format!("{:?}", resolve(&[], &[], None).expect("the defaults are valid"));
    for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
        let typed = resolve(&[(setting.name, setting.default)], &[], None);
        assert_eq!(format!("{:?}", typed.expect(setting.name)), untyped, "{}", setting.name);
    }
}

#[test]
fn traces_are_off_until_an_endpoint_is_named() {
    let traces = resolve(&[], &[], None).expect("the defaults are valid").http.traces;
    assert_eq!((traces.endpoint.url(), traces.sample_ratio.get()), (None, 1.0));
    let typed = [("otlp-endpoint", "http://collector:4318"), ("otlp-sample-ratio", "0.1")];
    let traces = resolve(&typed, &[], None).expect("valid").http.traces;
    assert_eq!(traces.endpoint.url(), Some("http://collector:4318/v1/traces"));
    assert_eq!(traces.sample_ratio.get(), 0.1);
    let wrong = [("otlp-endpoint", "collector"), ("otlp-sample-ratio", "2")];
    let problems = resolve(&wrong, &[], None).expect_err("two problems");
    assert!(problems[0].starts_with("--otlp-endpoint: give a URL"), "{problems:?}");
    assert_eq!(problems[1], "--otlp-sample-ratio: '2' is not a number from 0 to 1");
}

#[test]
fn a_number_of_the_file_may_have_decimals() {
    let file = file("otlp_sample_ratio = 0.25\nport = 7\n");
    let config = resolve(&[], &[], Some(file.path())).expect("valid");
    assert_eq!((config.http.traces.sample_ratio.get(), config.address.port), (0.25, 7));
}

#[test]
fn special_tokens_are_escaped_when_asked_for() {
    let config = resolve(&[("escape-special-tokens", "true")], &[], None).expect("valid");
    assert_eq!(config.special_token_text, SpecialTokenText::Plain);
    assert_eq!(config.normalization, None);
    let config = resolve(&[("tokenizer-normalization", "huggingface")], &[], None).expect("valid");
    assert_eq!(config.normalization, Some(Normalization::Huggingface));
    let problems = resolve(&[("escape-special-tokens", "yes")], &[], None).expect_err("no word");
    assert_eq!(problems, ["--escape-special-tokens: 'yes' is not one of false, true"]);
}

#[test]
fn flag_beats_variable_beats_file_beats_default() {
    let file = file("max_items = 3\nport = 3\nlog_format = \"json\"\ntoken_input = \"model\"\n");
    let variables = [("DUOVEC_MAX_ITEMS", "2"), ("DUOVEC_PORT", "2")];
    let config = resolve(&[("max-items", "1")], &variables, Some(file.path())).expect("valid");
    assert_eq!(config.http.max_items.get(), 1);
    assert_eq!(config.address.port, 2);
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.token_input, TokenInput::Model);
    assert_eq!(config.queue.capacity.get(), 8192);
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let file = file("max_itmes = 3\nkeep_alive_s = [1]\nmax_batch_tokens = 3\n");
    let variables = [("DUOVEC_WORKERS", "many"), ("DUOVEC_PORT", "http")];
    let typed = [("host", "nowhere"), ("engine", "magic"), ("log-level", "duovec=loud")];
    let problems = resolve(&typed, &variables, Some(file.path())).expect_err("much is wrong");
    let place = file.path().display().to_string();
    let expected = [
        format!("{place}, max_itmes: unknown setting; did you mean max_items?"),
        format!("{place}, keep_alive_s: it must be a string"),
        format!("{place}, max_batch_tokens: 3 is outside 8 to 1048576 (tokens)"),
        "DUOVEC_WORKERS: 'many' is not a whole number of workers".to_owned(),
        "DUOVEC_PORT: 'http' is not a port, 0 to 65535".to_owned(),
        "--host: 'nowhere' is not an IP address".to_owned(),
        "--engine: 'magic' is not one of auto, openvino, tensorrt, tensorrt-rtx, fake".to_owned(),
        "--log-level: 'duovec=loud' is not a log level".to_owned(),
    ];
    for text in &expected {
        assert!(problems.iter().any(|problem| problem.contains(text)), "{text}: {problems:#?}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
}

#[test]
fn a_log_level_is_a_word_that_says_how_much() {
    for good in ["warn", "WARN", "off", "info,duovec::http=debug", "duovec=trace"] {
        assert!(resolve(&[("log-level", good)], &[], None).is_ok(), "{good}");
    }
    // A word that is no level would be taken for a part of the program, and silence all others.
    for bad in ["warning", "loud", "info,http", "duovec=loud"] {
        let problems = resolve(&[("log-level", bad)], &[], None).expect_err(bad);
        let expected = format!("--log-level: '{bad}' is not a log level; use error, warn, info");
        assert!(problems[0].starts_with(&expected), "{problems:?}");
    }
}

#[test]
fn an_unknown_setting_is_reported_with_the_one_that_looks_like_it() {
    for (key, problem) in [
        ("api_key", "unknown setting; did you mean api_keys?"),
        ("max-items", "unknown setting; did you mean max_items?"),
        ("colour", "unknown setting"),
    ] {
        let file = file(&format!("{key} = 1"));
        let problems = resolve(&[], &[], Some(file.path())).expect_err("unknown");
        assert_eq!(problems, [format!("{}, {key}: {problem}", file.path().display())]);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem() {
    let missing = resolve(&[], &[], Some(Path::new("/nowhere/duovec.toml"))).expect_err("missing");
    assert!(missing[0].contains("/nowhere/duovec.toml: cannot read it"), "{missing:?}");
    let broken = file("port = = 1");
    let problems = resolve(&[], &[], Some(broken.path())).expect_err("not TOML");
    assert!(problems[0].contains("invalid TOML"), "{problems:?}");
}

#[test]
fn the_queue_must_hold_the_largest_request() {
    let problems = resolve(&[("queue-capacity", "10")], &[], None).expect_err("too small");
    assert!(problems[0].contains("less than max-items 2048"), "{problems:?}");
}

#[test]
fn bytes_in_flight_must_leave_room_for_the_largest_body() {
    let problems = resolve(&[("max-inflight-bytes", "33554432")], &[], None).expect_err("7/8");
    assert!(problems[0].contains("29360128 bytes for one request"), "{problems:?}");
    let typed = [("max-inflight-bytes", "1000000"), ("max-body-bytes", "875000")];
    resolve(&typed, &[], None).expect("it just fits");
}

#[test]
fn the_usual_time_of_a_request_is_within_the_longest_one() {
    let typed = [("request-timeout-ms", "300001")];
    let problems = resolve(&typed, &[], None).expect_err("longer than the longest");
    assert!(problems[0].contains("less than request-timeout-ms 300001"), "{problems:?}");
    let typed = [("request-timeout-ms", "300001"), ("max-request-timeout-ms", "300001")];
    resolve(&typed, &[], None).expect("it fits");
}

#[test]
fn an_alias_does_not_end_as_names_do_that_ask_for_a_prompt() {
    let typed = [("model-aliases", "mine,mine-passage")];
    let problems = resolve(&typed, &[], None).expect_err("the end is NIM's");
    assert!(problems[0].contains("'mine-passage' has an end that asks"), "{problems:?}");
    let typed = [typed[0], ("dialects", "openai,tei")];
    resolve(&typed, &[], None).expect("it is a name like any other");
}

#[test]
fn what_is_to_be_measured_is_not_a_number() {
    let engine = resolve(&[], &[], None).expect("valid").engine;
    assert_eq!((engine.workers, engine.threads_per_worker), (None, None));
    assert_eq!(engine.optimize_for, OptimizeFor::Both);
    let typed = [("workers", "2"), ("optimize-for", "throughput")];
    let engine = resolve(&typed, &[], None).expect("valid").engine;
    assert_eq!(engine.workers.map(Workers::get), Some(2));
    assert_eq!(engine.optimize_for, OptimizeFor::Throughput);
    for text in ["", "-1", "1.5", "18446744073709551616"] {
        let problems = resolve(&[("workers", text)], &[], None).expect_err("no whole number");
        assert_eq!(problems, [format!("--workers: '{text}' is not a whole number of workers")]);
    }
    assert!(resolve(&[("workers", " 7 ")], &[], None).is_ok());
    let problems = resolve(&[("optimize-for", "speed")], &[], None).expect_err("no such goal");
    assert!(problems[0].contains("not one of both, latency, throughput"), "{problems:?}");
}

#[test]
fn devices_are_numbers_each_named_once() {
    let typed = |list| resolve(&[("devices", list)], &[], None);
    assert_eq!(typed(" 1, 0 ").expect("valid").engine.tensorrt.devices, [1, 0]);
    assert!(typed("0,0").expect_err("twice")[0].contains("named twice"));
    assert!(typed("gpu0").expect_err("a name")[0].contains("not the number of a GPU"));
    assert!(typed(",").expect_err("none")[0].contains("at least one"));
    let problems = typed("x").expect_err("no number");
    assert_eq!(problems, ["--devices: 'x' is not the number of a GPU"]);
}

#[test]
fn only_the_variable_of_a_list_is_split_at_commas() {
    let keys = |config: Config| -> Vec<String> {
        let keys = config.http.api_keys.iter();
        keys.map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()).collect()
    };
    let file = file("model_aliases = [\"a, b\", \"c\"]\napi_keys = [\" k1,x \", \"k2\"]\n");
    let config = resolve(&[], &[], Some(file.path())).expect("valid");
    assert_eq!(config.model_aliases, ["a, b", "c"]);
    assert_eq!(keys(config), ["k1,x", "k2"]);
    let variables = [("DUOVEC_API_KEYS", " k3 ,, k4 "), ("DUOVEC_MODEL_ALIASES", "d,e")];
    let config = resolve(&[], &variables, Some(file.path())).expect("valid");
    assert_eq!(config.model_aliases, ["d", "e"]);
    assert_eq!(keys(config), ["k3", "k4"]);
}

#[test]
fn a_variable_named_like_a_flag_that_has_another_one_is_not_ignored() {
    let problems = resolve(&[], &[("DUOVEC_API_KEY", "secret")], None).expect_err("it opens all");
    let problem = "DUOVEC_API_KEY: nothing reads this variable; did you mean DUOVEC_API_KEYS?";
    assert_eq!(problems, [problem]);
}

#[test]
fn a_misspelt_variable_of_keys_tls_or_address_starts_no_server_and_another_one_is_said() {
    let slips = ["DUOVEC_APIKEYS", "DUOVEC_API_KEYFILE", "DUOVEC_TLS_CRT", "DUOVEC_PROT"];
    let problems = resolve(&[], &slips.map(|name| (name, "1")), None).expect_err("it opens all");
    for (slip, problem) in slips.iter().zip(&problems) {
        assert!(problems.len() == 4 && problem.contains("did you mean"), "{slip}: {problems:?}");
    }
    let config = resolve(&[], &[("DUOVEC_WORKER", "2")], None).expect("it opens nothing");
    assert_eq!(config.warnings, ["nothing reads DUOVEC_WORKER; did you mean DUOVEC_WORKERS?"]);
}

#[test]
fn what_came_with_a_release_is_replaced_by_anything_else_that_is_said() {
    let (own, set) = (("DUOVEC_DEFAULT_PACKAGE", "/release"), ("DUOVEC_PACKAGE", "/variable"));
    let (other, package) = (file("port = 7\n"), file("package = \"/file\"\n"));
    for (flags, variables, file, expected) in [
        (&[][..], &[own][..], None, "/release"),
        (&[], &[own], Some(other.path()), "/release"),
        (&[], &[own], Some(package.path()), "/file"),
        (&[], &[own, set], Some(package.path()), "/variable"),
        (&[("package", "/flag")], &[own, set], Some(package.path()), "/flag"),
    ] {
        let config = resolve(flags, variables, file).expect("valid");
        assert_eq!((config.package.to_str(), config.warnings.len()), (Some(expected), 0));
    }
}

#[test]
fn what_kubernetes_says_of_a_service_named_duovec_sets_nothing() {
    let file = file("port = 7\n");
    let (port, host) = (("DUOVEC_PORT", "tcp://10.0.0.1:80"), ("DUOVEC_SERVICE_HOST", "10.0.0.1"));
    let config = resolve(&[], &[port, host, ("DUOVEC_PORT_80_TCP", port.1)], Some(file.path()));
    let config = config.expect("there is nothing wrong");
    assert_eq!((config.address.port, config.warnings), (7, Vec::<String>::new()));
}

#[test]
fn a_list_of_the_file_is_written_as_a_list() {
    let file = file("api_keys = \"k1,k2\"\ncors_origin = [1]\nport = [1]\n");
    let problems = resolve(&[], &[], Some(file.path())).expect_err("three are no lists");
    let list = "it must be a list of strings, such as [\"a\", \"b\"]";
    for (key, problem) in [
        ("api_keys", list),
        ("cors_origin", list),
        ("port", "it must be a string, a number or a boolean"),
    ] {
        assert!(problems.iter().any(|said| said.ends_with(&format!("{key}: {problem}"))), "{key}");
    }
}

#[test]
fn keys_are_in_no_debug_output_and_in_no_problem() {
    let file = file("api_keys = [\"kept-secret-1\"]\n");
    let raw = RawConfig::gather(flags(&[]), BTreeMap::new(), Some(file.path()));
    let config = Config::resolve(&raw).expect("valid");
    for text in [format!("{raw:?}"), format!("{config:?}")] {
        assert!(!text.contains("kept-secret"), "{text}");
    }
    let broken = self::file("port = 1\napi_keys = [\"kept-secret-2\"\n");
    let problems = resolve(&[], &[], Some(broken.path())).expect_err("not TOML");
    assert!(problems[0].contains("line ") && !problems[0].contains("kept"), "{problems:?}");
}

#[test]
fn origins_are_written_as_browsers_send_them() {
    let origins = ["https://a.example", "http://localhost:3000", "*"];
    let config = resolve(&origins.map(|origin| ("cors-origin", origin)), &[], None);
    assert_eq!(config.expect("valid").http.cors_origins, origins);
    let wrong = ["a.example", "https://", "https://a.example/", "https://*.a", "https://A.example"];
    for wrong in [&wrong[..], &["https://a.example,https://b"]].concat() {
        let problems = resolve(&[("cors-origin", wrong)], &[], None).expect_err(wrong);
        assert!(problems[0].contains("is not an origin"), "{problems:?}");
    }
}

#[test]
fn a_certificate_needs_its_key() {
    assert_eq!(resolve(&[], &[], None).expect("valid").http.tls, None);
    let both = [("tls-cert", "c.pem"), ("tls-key", "k.pem")];
    let config = resolve(&both, &[], None).expect("valid");
    assert_eq!(config.http.tls, Some(TlsFiles { cert: "c.pem".into(), key: "k.pem".into() }));
    for one in both {
        let problems = resolve(&[one], &[], None).expect_err("the other is missing");
        assert!(problems[0].contains(one.0) && problems[0].contains("both"), "{problems:?}");
    }
}

#[test]
fn metrics_cannot_need_a_key_that_nobody_has() {
    let needed = ("metrics-need-key", "true");
    let problems = resolve(&[needed], &[], None).expect_err("there is no key");
    assert!(problems[0].contains("--metrics-need-key: ") && problems[0].contains("--api-key-file"));
    for key in [("api-keys", "key"), ("api-key-file", "keys.txt")] {
        resolve(&[needed, key], &[], None).expect("there is one");
    }
}

#[test]
fn the_mode_of_the_unix_socket_is_octal() {
    let typed =
        |mode| resolve(&[("unix-socket", "/run/d.sock"), ("unix-socket-mode", mode)], &[], None);
    let socket = typed("600").expect("valid").http.unix_socket.expect("it was named");
    assert_eq!((socket.path.to_str(), socket.mode), (Some("/run/d.sock"), 0o600));
    for wrong in ["", "rw", "888", "1777", "-1"] {
        assert!(typed(wrong).expect_err(wrong)[0].contains("is not a file mode"), "{wrong}");
    }
    assert_eq!(resolve(&[], &[], None).expect("valid").http.unix_socket, None);
}

#[test]
fn names_of_settings_are_unique_and_spelled_alike() {
    let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), SETTINGS.len());
    for setting in SETTINGS {
        assert!(setting.name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')));
        assert_eq!(setting.variable(), format!("DUOVEC_{}", setting.key().to_uppercase()));
    }
}

#[test]
fn dialects_are_words_each_named_once() {
    let dialects = |typed: &str| {
        let config = resolve(&[("dialects", typed)], &[], None);
        config.map(|config| config.http.dialects).map_err(|problems| problems.join("\n"))
    };
    assert_eq!(dialects("openai"), Ok(vec![Dialect::OpenAi]));
    assert_eq!(dialects("nim, openai"), Ok(vec![Dialect::Nim, Dialect::OpenAi]));
    for (typed, problem) in [
        ("", "--dialects: name at least one of openai, nim, tei"),
        ("openai,cohere", "--dialects: 'cohere' is not one of openai, nim, tei"),
        ("openai,openai", "--dialects: 'openai' is named twice"),
        ("nim", "--dialects: nim is words on the routes of openai"),
    ] {
        let found = dialects(typed).expect_err(typed);
        assert!(found.starts_with(problem), "{found}");
    }
}
