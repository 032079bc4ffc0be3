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
