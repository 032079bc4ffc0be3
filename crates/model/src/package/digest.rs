//! SHA-256 in hexadecimal, as manifests and the records of outputs hold it.

use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

const READ_BUFFER_BYTES: usize = 1 << 20;

/// The digest of a file from its place on, which is never in memory as a whole.
pub fn of_file(file: &mut File) -> io::Result<String> {
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; READ_BUFFER_BYTES]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(in_hexadecimal(hasher)),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// The digest of `bytes`.
pub fn of_bytes(bytes: &[u8]) -> String {
    in_hexadecimal(Sha256::new_with_prefix(bytes))
}

/// The digest of what `hasher` was given.
pub fn in_hexadecimal(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
