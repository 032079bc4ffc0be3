//! What every answer has in common, and the rules of errors.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use reqwest::header::HeaderMap;
use serde_json::Value;
use testing::table;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Status and type of each error by its code, as the table of the document tells them.
static ERRORS: LazyLock<BTreeMap<&str, (&str, &str)>> = LazyLock::new(|| {
    let cells = |row: &'static str| -> Vec<&str> {
        row.split('|').map(|cell| cell.trim().trim_matches('`')).collect()
    };
    let rows = table(include_str!("../../../docs/api.md"), "| code |").into_iter().map(cells);
    rows.map(|cells| (cells[1], (cells[2], cells[3]))).collect()
});

/// An answer as a client sees it.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    /// The request, for whoever reads that a test failed.
    pub(crate) asked: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// What the message of an error says, and to which request.
#[derive(Debug)]
pub(crate) struct Said(pub(crate) String, String);

impl Said {
    /// Checks that it says these words, with `…` between those that may be apart.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Self {
        let Self(said, asked) = self;
        for part in words.split('…') {
            assert!(said.contains(part), "'{part}' is not in: {said}, the answer to {asked}");
        }
        self
    }
}

impl Answer {
    pub(crate) async fn read(asked: String, response: reqwest::Response) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = response.bytes().await.expect("the answer is whole").to_vec();
        Self { asked, status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("our headers are ASCII"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("it is UTF-8")
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
        assert_eq!(self.status, 200, "{}: {}", self.asked, String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// Checks that this is an error in OpenAI's form with this code, with the status and the type
    /// that the document tells, about this field or header (about none: ""). Gives its message.
    #[track_caller]
    pub(crate) fn refused(&self, code: &str, param: &str) -> Said {
        let body = self.json();
        let error = body["error"].as_object();
        let error = error.unwrap_or_else(|| panic!("{} is not refused: {body}", self.asked));
        assert_eq!(body.as_object().map(|body| body.len()), Some(1), "{body}");
        let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        let (status, kind) = ERRORS.get(code).expect("the document has this code");
        let param = if param.is_empty() { Value::Null } else { param.into() };
        let asked = &self.asked;
        assert_eq!((&error["code"], &error["param"]), (&code.into(), &param), "{asked}: {body}");
        assert_eq!((self.status.to_string().as_str(), &error["type"]), (*status, &(*kind).into()));
        Said(error["message"].as_str().expect("a message").to_owned(), asked.clone())
    }
}
