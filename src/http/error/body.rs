//! What the body of a refusal consists of.

use serde::Serialize;

/// The body of every refusal.
#[derive(Serialize)]
pub(in crate::http) struct ErrorBody<'a> {
    pub(super) error: Parts<'a>,
}

#[derive(Serialize)]
pub(in crate::http) struct Parts<'a> {
    /// What is wrong, and what to do about it.
    pub(super) message: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The field or the header that is wrong.
    pub(super) param: Option<&'static str>,
    /// The word to compare with.
    pub(super) code: &'static str,
}

/// The body of a refusal in the form of text-embeddings-inference.
#[derive(Serialize)]
pub(in crate::http) struct TeiError<'a> {
    pub(in crate::http) error: &'a str,
    pub(in crate::http) error_type: &'static str,
}
