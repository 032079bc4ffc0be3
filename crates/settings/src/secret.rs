//! What must not be printed.

use std::fmt;

/// A key that opens the server; its `Debug` does not show it, and it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes the key as clients send it.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key, to be compared.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiKey(hidden)")
    }
}
