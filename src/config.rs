//! What the server runs with: resolved, validated, immutable.

use crate::limits::{
    DeepHealthTimeoutMs, HttpThreads, KeepAliveS, MaxBodyBytes, MaxItems, RequestTimeoutMs,
};

/// Whether clients may send token ids in place of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenInput {
    Accept,
    Reject,
}

/// What happens to over-long items when a request does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncateDefault {
    Truncate,
    Refuse,
}

/// What the HTTP side needs to know.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    pub threads: HttpThreads,
    pub keep_alive: KeepAliveS,
    pub max_items: MaxItems,
    pub max_body_bytes: MaxBodyBytes,
    pub request_timeout: RequestTimeoutMs,
    pub deep_health_timeout: DeepHealthTimeoutMs,
    pub truncate: TruncateDefault,
    /// Keys that clients may send as `Authorization: Bearer <key>`; none = no key is asked for.
    pub api_keys: Vec<String>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            threads: HttpThreads::DEFAULT,
            keep_alive: KeepAliveS::DEFAULT,
            max_items: MaxItems::DEFAULT,
            max_body_bytes: MaxBodyBytes::DEFAULT,
            request_timeout: RequestTimeoutMs::DEFAULT,
            deep_health_timeout: DeepHealthTimeoutMs::DEFAULT,
            truncate: TruncateDefault::Truncate,
            api_keys: Vec::new(),
        }
    }
}
