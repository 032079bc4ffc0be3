//! Whether a request shows one of the configured keys.

use std::io;
use std::path::Path;
use std::sync::Arc;

use actix_web::http::header::HeaderMap;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::error::{ApiError, Code};
use super::single::single;
use super::watched::Watched;
use settings::secret::ApiKey;

pub(super) mod key_file;

use key_file::{KeyFile, KeyFileError};

const AUTHORIZATION: &str = "authorization";

/// SHA-256 of a key: all are equally long, so that a comparison takes equally long.
type KeyDigest = [u8; 32];

/// The keys that open the routes; those of the file are exchanged while requests are checked.
pub(super) struct Keys {
    /// From the configuration.
    fixed: Vec<KeyDigest>,
    file: Option<Arc<Watched<KeyFile>>>,
}

impl Keys {
    /// Without a key and without a file every request passes.
    pub(super) fn open(keys: &[ApiKey], path: Option<&Path>) -> Result<Self, KeyFileError> {
        let fixed = keys.iter().map(|key| digest(key.as_bytes())).collect();
        let file = path.map(|path| Watched::open(KeyFile::new(path))).transpose()?;
        match (path, &file) {
            (Some(path), Some(file)) if file.current().is_empty() => {
                Err(KeyFileError::Empty { path: path.to_owned() })
            }
            _ => Ok(Self { fixed, file }),
        }
    }

    /// How many keys there are; without any every request passes.
    pub(super) fn count(&self) -> usize {
        self.fixed.len() + self.file.as_ref().map_or(0, |file| file.current().len())
    }

    /// From now on the keys of the file change with it.
    pub(super) fn watch_file(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), Watched::watch)
    }

    /// Refuses a request that shows none of the keys.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.fixed.is_empty() && self.file.is_none() {
            return Ok(());
        }
        let of_file = self.file.as_ref().map(|file| file.current());
        let keys = self.fixed.iter().chain(of_file.iter().flat_map(|keys| keys.iter()));
        let refuse = |message| Err(ApiError::new(Code::InvalidApiKey, message));
        let Ok(shown) = single(headers, AUTHORIZATION) else {
            return refuse("the header Authorization comes more than once; send it once");
        };
        let Some(shown) = shown else {
            return refuse("this server wants an API key; send Authorization: Bearer <key>");
        };
        if holds(keys, token(shown.as_bytes())) {
            return Ok(());
        }
        refuse("the API key is not one of this server's; check Authorization: Bearer <key>")
    }
}

/// Compares with every key, so that the time does not tell which one was close.
fn holds<'a>(keys: impl Iterator<Item = &'a KeyDigest>, token: &[u8]) -> bool {
    let shown = digest(token);
    let found = keys.fold(Choice::from(0), |found, key| found | key.ct_eq(&shown));
    found.into()
}

fn digest(key: &[u8]) -> KeyDigest {
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
