//! Tests of precedence, of every default, and of the report of all problems at once.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::raw::RawConfig;
use super::table::SETTINGS;
use super::{Config, Dialect, Normalization, OptimizeFor, SpecialTokenText, TlsFiles};
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
        "--host: 'nowhere' is not an IP address; give one of this machine, or 0.0.0.0".to_owned(),
        "--engine: 'magic' is not one of auto, openvino, tensorrt, tensorrt-rtx, fake".to_owned(),
        "--log-level: 'duovec=loud' is not a log level".to_owned(),
    ];
    for text in &expected {
        assert!(problems.iter().any(|problem| problem.contains(text)), "{text}: {problems:#?}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
}

#[test]
fn an_unknown_setting_is_reported_with_the_one_that_looks_like_it() {
    for (key, problem) in [
        ("api_key", "unknown setting; did you mean api_keys?"),
        ("max-items", "unknown setting; did you mean max_items?"),
        ("PORT", "unknown setting; did you mean port?"),
        ("DUOVEC_MAX_ITEMS", "unknown setting; did you mean max_items?"),
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
    let expected = "/nowhere/duovec.toml: there is no such file; write it, correct --config or \
                    DUOVEC_CONFIG, or leave both out";
    assert_eq!(missing, [expected]);
    let folder = resolve(&[], &[], Some(Path::new("/"))).expect_err("it is a folder");
    assert!(folder[0].contains("/: cannot read it: "), "{folder:?}");
    let tables = file("[server]\nport = 1");
    let problems = resolve(&[], &[], Some(tables.path())).expect_err("it has a table");
    assert!(problems[0].contains("no tables; write the settings without [server]"), "{problems:?}");
    let broken = file("port = = 1");
    let problems = resolve(&[], &[], Some(broken.path())).expect_err("not TOML");
    assert!(problems[0].contains("invalid TOML"), "{problems:?}");
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

/// The configuration of these flags.
fn typed(pairs: &[(&str, &str)]) -> Config {
    resolve(pairs, &[], None).expect("valid")
}

#[test]
fn typed_values_become_those_of_their_settings() {
    let config = typed(&[]);
    assert_eq!((config.http.traces.endpoint, config.http.traces.sample_ratio), (None, 1.0));
    assert_eq!(
        (config.normalization, config.http.tls, config.http.unix_socket),
        (None, None, None)
    );
    assert_eq!((config.engine.workers, config.engine.threads_per_worker), (None, None));
    assert_eq!(config.engine.optimize_for, OptimizeFor::Both);
    let file = file("otlp_sample_ratio = 0.25\nport = 7\n");
    let config = resolve(&[], &[], Some(file.path())).expect("numbers may have decimals");
    assert_eq!((config.http.traces.sample_ratio, config.address.port), (0.25, 7));
    let config = typed(&[
        ("escape-special-tokens", "true"),
        ("tokenizer-normalization", "huggingface"),
        ("workers", " 7 "),
        ("optimize-for", "throughput"),
        ("devices", " 1, 0 "),
        ("dialects", "nim, openai"),
        ("tls-cert", "c.pem"),
        ("tls-key", "k.pem"),
        ("unix-socket", "/run/d.sock"),
        ("unix-socket-mode", "600"),
    ]);
    assert_eq!(config.special_token_text, SpecialTokenText::Plain);
    assert_eq!(config.normalization, Some(Normalization::Huggingface));
    assert_eq!(config.engine.workers.map(Workers::get), Some(7));
    assert_eq!(config.engine.optimize_for, OptimizeFor::Throughput);
    assert_eq!(config.engine.tensorrt.devices, [1, 0]);
    assert_eq!(config.http.dialects, [Dialect::Nim, Dialect::OpenAi]);
    assert_eq!(config.http.tls, Some(TlsFiles { cert: "c.pem".into(), key: "k.pem".into() }));
    let socket = config.http.unix_socket.expect("it was named");
    assert_eq!((socket.path.to_str(), socket.mode), (Some("/run/d.sock"), 0o600));
    let origins = ["https://a.example", "http://localhost:3000", "*"];
    let config = typed(&origins.map(|origin| ("cors-origin", origin)));
    assert_eq!(config.http.cors_origins, origins);
    for level in ["warn", "WARN", "off", "info,duovec::http=debug", "duovec=trace"] {
        typed(&[("log-level", level)]);
    }
    for ratio in ["0", "1", " 0.25"] {
        typed(&[("otlp-sample-ratio", ratio)]);
    }
    for (url, whole) in [
        (" ", None),
        ("http://c:4318", Some("http://c:4318/v1/traces")),
        ("http://c:4318/", Some("http://c:4318/v1/traces")),
        ("http://c:4318/v1/traces", Some("http://c:4318/v1/traces")),
        ("http://[::1]:1/x", Some("http://[::1]:1/x/v1/traces")),
    ] {
        let config = typed(&[("otlp-endpoint", url)]);
        assert_eq!(config.http.traces.endpoint.as_deref(), whole, "{url}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_what_is_right() {
    for (name, values, problem) in [
        ("escape-special-tokens", &["yes"][..], "'yes' is not one of false, true"),
        ("optimize-for", &["speed"], "'speed' is not one of both, latency, throughput"),
        ("workers", &["", "-1", "1.5", "18446744073709551616"], "is not a whole number of workers"),
        ("cache-bytes", &["1GB"], "is not a whole number of bytes, such as 1048576"),
        ("max-items", &["0", "65537"], "is outside 1 to 65536 (items)"),
        ("devices", &["0,0"], "GPU 0 is named twice"),
        ("devices", &["gpu0", "x"], "is not the number of a GPU"),
        ("devices", &[","], "name at least one GPU"),
        ("dialects", &[""], "name at least one of openai, nim, tei"),
        ("dialects", &["openai,cohere"], "'cohere' is not one of openai, nim, tei"),
        ("dialects", &["openai,openai"], "'openai' is named twice"),
        ("unix-socket-mode", &["", "rw", "888", "1777", "-1"], "is not a file mode"),
        // A word that is no level would be taken for a part of the program, and silence all others.
        (
            "log-level",
            &["warning", "loud", "info,http", "duovec=loud"],
            "is not a log level; use error",
        ),
        ("cors-origin", &["a.example", "https://", "https://a.example/"], "is not an origin"),
        ("cors-origin", &["https://*.a", "https://A.example"], "is not an origin"),
        ("cors-origin", &["https://a.example,https://b"], "is not an origin"),
        ("otlp-endpoint", &["https://c", "c:4318"], "give a URL that begins with http://"),
        ("otlp-endpoint", &["http://user:word@c"], "leave user and password out"),
        (
            "otlp-endpoint",
            &["http://", "http:///x", "http://:1", "http://a b"],
            "the URL has no host",
        ),
        ("otlp-endpoint", &["http://a?b", "http://ä"], "the URL has no host"),
        (
            "otlp-sample-ratio",
            &["", "-0.1", "1.1", "NaN", "inf", "half"],
            "is not a number from 0 to 1",
        ),
    ] {
        for value in values {
            let problems = resolve(&[(name, value)], &[], None).expect_err(value);
            assert_eq!(problems.len(), 1, "{problems:?}");
            let start = format!("--{name}: ");
            assert!(
                problems[0].starts_with(&start) && problems[0].contains(problem),
                "{problems:?}"
            );
        }
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused_and_those_that_do_are_not() {
    let (alias, time) = (("model-aliases", "mine,mine-passage"), ("request-timeout-ms", "300001"));
    let (cert, key) = (("tls-cert", "c.pem"), ("tls-key", "k.pem"));
    let (needed, small) = (("metrics-need-key", "true"), ("max-inflight-bytes", "1000000"));
    let keys = "give keys with --api-key-file";
    for (pairs, problem) in [
        (&[needed][..], "--metrics-need-key: there is no key"),
        (&[needed], keys),
        (&[needed, ("api-keys", "key")], ""),
        (&[needed, ("api-key-file", "keys.txt")], ""),
        (&[("queue-capacity", "10")], "--queue-capacity: 10 is less than max-items 2048"),
        (&[("max-inflight-bytes", "33554432")], "leaves 29360128 bytes for one request"),
        (&[small, ("max-body-bytes", "875000")], "leaves 875000 bytes for one request with its"),
        (&[small, ("max-body-bytes", "874999")], ""),
        (&[("cache-bytes", "65535")], "--cache-bytes: 65535 bytes may not hold the vectors"),
        (&[("cache-bytes", "65536")], ""),
        (&[time], "is less than request-timeout-ms 300001"),
        (&[time, ("max-request-timeout-ms", "300001")], ""),
        (&[alias], "'mine-passage' has an end that asks"),
        (&[alias, ("dialects", "openai,tei")], ""),
        (&[("dialects", "nim")], "--dialects: nim is words on the routes of openai"),
        (&[cert], "--tls-cert: give both"),
        (&[key], "--tls-key: give both"),
        (&[cert, key], ""),
    ] {
        let problems =
            resolve(pairs, &[], None).map_or_else(|problems| problems.concat(), |_| String::new());
        assert!(
            problems.contains(problem) && problems.is_empty() == problem.is_empty(),
            "{problems}"
        );
    }
}
