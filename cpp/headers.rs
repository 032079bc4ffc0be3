//! Which folder has a vendor's headers, and how the compiler is told of it.

use std::fs;
use std::path::Path;

/// Folders that the compiler searches without being told.
const USUAL: [&str; 4] = [
    "/usr/include",
    "/usr/local/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
];

/// The compiler's flags for headers in `folder`, whose warnings are not ours. None for a usual
/// folder: once named it would come before the compiler's own one, which then finds no stdlib.h.
pub(crate) fn flags(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    match USUAL.iter().any(|usual| folder == Path::new(usual)) {
        true => Vec::new(),
        false => vec!["-isystem".to_owned(), folder.display().to_string()],
    }
}

/// Whether `folder` has all of `files`, the first of a version that the sources are written for: one
/// of its lines begins with one of `versions`.
pub(crate) fn suits(folder: &Path, files: &[&str], versions: &[&str]) -> bool {
    let first = files.first().map(|file| fs::read_to_string(folder.join(file)).unwrap_or_default());
    let known = first.unwrap_or_default().lines().any(|line| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        versions.iter().any(|version| line.starts_with(version))
    });
    known && files.iter().all(|file| folder.join(file).exists())
}
