//! Tests of which files make a pair, and when another pair is taken.

use std::fs;
use std::path::Path;

use rcgen::{CertifiedKey as Generated, generate_simple_self_signed};
use tempfile::TempDir;
use tokio_rustls::rustls::ProtocolVersion;

use super::{Tls, TlsError, VERSIONS};
use settings::TlsFiles;

struct Pair {
    cert: String,
    key: String,
    der: Vec<u8>,
}

fn pair() -> Pair {
    let names = vec!["localhost".to_owned()];
    let Generated { cert, signing_key } = generate_simple_self_signed(names).expect("a pair");
    Pair { cert: cert.pem(), key: signing_key.serialize_pem(), der: cert.der().to_vec() }
}

fn folder() -> (TempDir, TlsFiles) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = TlsFiles { cert: folder.path().join("c.pem"), key: folder.path().join("k.pem") };
    (folder, files)
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("it is written");
}

fn in_use(tls: &Tls) -> Vec<u8> {
    tls.certificate.current().cert[0].to_vec()
}

#[test]
fn versions_before_1_2_are_not_spoken() {
    let spoken = VERSIONS.map(|version| version.version);
    assert_eq!(spoken, [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2]);
}

#[test]
fn each_bad_file_is_named_with_its_fault() {
    let (_folder, files) = folder();
    let (ours, other) = (pair(), pair());
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----";
    let unended = "-----BEGIN PRIVATE KEY-----\nTUFB\n";
    let fault = |cert: Option<&str>, key: Option<&str>| {
        for (path, text) in [(&files.cert, cert), (&files.key, key)] {
            let _ = fs::remove_file(path);
            text.inspect(|text| write(path, text));
        }
        let error = Tls::open(&files).err().expect("it is no pair");
        assert!(!error.to_string().contains("TUFB"), "the key is in the message: {error}");
        error
    };
    let (cert, key) = (Some(&*ours.cert), Some(&*ours.key));
    assert!(matches!(fault(None, key), TlsError::Read { path, .. } if path == files.cert));
    assert!(matches!(fault(cert, None), TlsError::Read { path, .. } if path == files.key));
    assert!(matches!(fault(Some("text"), key), TlsError::NoCertificate { .. }));
    assert!(matches!(fault(key, key), TlsError::NoCertificate { .. }));
    assert!(matches!(fault(cert, cert), TlsError::NoKey { .. }));
    assert!(matches!(fault(cert, Some(encrypted)), TlsError::EncryptedKey { .. }));
    assert!(matches!(fault(cert, Some(unended)), TlsError::NotPem { .. }));
    assert!(matches!(fault(cert, Some(&other.key)), TlsError::Mismatch { .. }));
    write(&files.key, &ours.key);
    assert!(Tls::open(&files).is_ok());
}

#[test]
fn a_new_pair_is_taken_once_both_files_are_there_and_a_bad_one_never() {
    let (_folder, files) = folder();
    let (old, new) = (pair(), pair());
    write(&files.cert, &old.cert);
    write(&files.key, &old.key);
    let tls = Tls::open(&files).expect("a pair");
    let look = || {
        tls.certificate.refresh();
        in_use(&tls)
    };
    assert_eq!(look(), old.der);
    write(&files.cert, &new.cert);
    assert_eq!(look(), old.der, "the key is not its own");
    write(&files.key, &new.key);
    assert_eq!(look(), new.der);
    fs::remove_file(&files.key).expect("it was there");
    assert_eq!(look(), new.der);
    write(&files.cert, &old.cert);
    write(&files.key, &old.key);
    assert_eq!(look(), old.der);
}
