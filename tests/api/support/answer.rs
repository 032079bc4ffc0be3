//! What every answer has in common.

use serde_json::Value;

use super::Refusal;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An answer as a client sees it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("our headers are ASCII"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// What holds for every answer on every route.
    pub(super) fn check_common(&self, head: bool) {
        // Only pages say what they may load; they and the metrics are no JSON.
        let is_page = self.header("content-security-policy").is_some();
        let is_text = self.header("content-type") == Some(TEXT);
        let is_json = self.header("content-type") == Some(JSON);
        assert_eq!(is_json, !is_page && !is_text, "{self:?}");
        let id = self.header("x-request-id").expect("every answer has an id");
        assert!((1..=128).contains(&id.len()), "{id}");
        let length: usize = self.header("content-length").expect("a length").parse().expect("int");
        if head {
            assert!(self.body.is_empty());
        } else {
            assert_eq!(length, self.body.len());
            assert!(!is_json || self.json().is_object() || self.json().is_array());
        }
    }

    /// The body of a successful answer.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// An error as `(status, type, code, param)`, its form checked.
    #[track_caller]
    pub(crate) fn error(&self) -> Refusal {
        let body = self.json();
        let error = body["error"].as_object().expect("an error object");
        assert_eq!(body.as_object().map(|body| body.len()), Some(1), "{body}");
        let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        let text = |key: &str| error[key].as_str().map(str::to_owned);
        Refusal {
            status: self.status,
            kind: text("type").expect("a type"),
            code: text("code").expect("a code"),
            param: text("param"),
            message: text("message").expect("a message"),
        }
    }
}
