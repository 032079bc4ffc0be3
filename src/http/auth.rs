//! Whether a request shows one of the configured keys.

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::error::{ApiError, Code};

/// The configured keys as digests: equally long, so that a comparison takes equally long.
pub(super) struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Without a key every request passes.
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    /// Refuses a request that shows none of the keys.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let refuse = |message| Err(ApiError::new(Code::InvalidApiKey, message));
        let Some(shown) = headers.get(AUTHORIZATION) else {
            return refuse("this server wants an API key; send Authorization: Bearer <key>");
        };
        if self.holds(token(shown.as_bytes())) {
            return Ok(());
        }
        refuse("the API key is not one of this server's; check Authorization: Bearer <key>")
    }

    /// Compares with every key, so that the time does not tell which one was close.
    fn holds(&self, token: &[u8]) -> bool {
        let shown = digest(token);
        let found = self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&shown));
        found.into()
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// What follows "Bearer "; the whole value where a client sends the bare key.
fn token(value: &[u8]) -> &[u8] {
    const SCHEME: &[u8] = b"bearer ";
    let value = value.trim_ascii();
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    #[test]
    fn keys_are_found_with_and_without_the_scheme() {
        let keys = Keys::new(&["alpha".to_owned(), "beta".to_owned()]);
        for (value, passes) in [
            ("Bearer alpha", true),
            ("bearer   beta ", true),
            ("beta", true),
            ("Bearer alph", false),
            ("Bearer alphaa", false),
            ("Bearer", false),
            ("Bearer ", false),
            ("", false),
            ("Basic alpha", false),
            ("Bearer Bearer alpha", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(keys.check(&headers).is_ok(), passes, "{value:?}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
    }

    #[test]
    fn without_keys_every_request_passes() {
        assert!(Keys::new(&[]).check(&HeaderMap::new()).is_ok());
    }
}
