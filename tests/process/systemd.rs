//! The unit in `deploy/`, and what the process tells its service manager.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use model::package::ModelPackage;
use testing::text_of;

use super::support::*;

const UNIT: &str = "deploy/duovec.service";
const DROP_IN: &str = "deploy/duovec-gpu.conf";

/// A service manager's end of the protocol.
struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a new name");
        socket.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        Self { folder, socket }
    }

    /// A server that the manager started and watches.
    fn start(&self, watchdog: Duration, more: &[&str]) -> Server {
        self.start_as(duovec(), watchdog, more)
    }

    /// The same, where `command` runs the binary.
    fn start_as(&self, mut command: Command, watchdog: Duration, more: &[&str]) -> Server {
        command.args(["serve", "--engine", "fake", "--drain-delay-ms", "0", "--package"]);
        command.arg(tiny()).args(more).env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        Server::spawn(&mut command)
    }

    /// What was said and not yet read.
    fn said(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).expect("it is a socket");
        let mut message = [0; 256];
        let said = std::iter::from_fn(|| {
            let length = self.socket.recv(&mut message).ok()?;
            Some(String::from_utf8_lossy(&message[..length]).trim_end().to_owned())
        });
        let said = said.collect();
        self.socket.set_nonblocking(false).expect("it is a socket");
        said
    }

    fn next(&self) -> String {
        let mut message = [0; 256];
        let length = self.socket.recv(&mut message).expect("the process says something");
        String::from_utf8_lossy(&message[..length]).trim_end().to_owned()
    }
}

#[test]
fn the_manager_hears_of_readiness_life_and_end() {
    let manager = Manager::new();
    let server = manager.start(Duration::from_millis(200), &[]);
    assert_eq!(manager.next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(manager.next(), "WATCHDOG=1");
    }
    server.signal("TERM");
    let end = std::iter::repeat_with(|| manager.next()).find(|message| message != "WATCHDOG=1");
    assert_eq!(end.as_deref(), Some("STOPPING=1"));
    assert_eq!(server.wait().code(), Some(0));
}

const PERIOD: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_worker_that_is_stuck_gives_no_sign_of_life() {
    let manager = Manager::new();
    let server = manager.start(PERIOD, &["--fake-run-ms", "60000", "--worker-stuck-ms", "200"]);
    assert_eq!(manager.next(), "READY=1");
    assert_eq!(server.text("a").send().await.expect("an answer").status(), 503);
    // One may have been on its way when the worker was given up; then silence for ten periods.
    thread::sleep(PERIOD);
    manager.said();
    let silence = Some(Duration::from_secs(1));
    manager.socket.set_read_timeout(silence).expect("it is a socket");
    assert!(manager.socket.recv(&mut [0; 256]).is_err(), "a sign of life");
}

/// Each HTTP thread has files open of its own; a hundred need more than the process may have.
#[test]
fn a_server_whose_http_side_cannot_start_ends_with_a_failure_and_is_never_ready() {
    let manager = Manager::new();
    let mut server = manager.start_as(limited("-n 64"), PERIOD, &["--http-threads", "100"]);
    let ended = server.wait_within(PATIENCE);
    let said = manager.said();
    assert!(ended.is_some(), "the process stays without a listener and said {said:?}");
    assert_eq!((ended.and_then(|status| status.code()), said.len()), (Some(1), 0), "{said:?}");
    let log = server.rest();
    assert!(log.contains("the HTTP side"), "{log}");
}

/// Skipped where systemd's tools are not installed.
#[test]
fn the_unit_is_well_formed_and_sandboxed() {
    let analyze = |arguments: &[&str], unit: &Path| {
        let output = Command::new("systemd-analyze").args(arguments).arg(unit).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    };
    let text = text_of(UNIT);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("duovec.service");
    let installed = text.replace("/usr/local/bin/duovec", env!("CARGO_BIN_EXE_duovec"));
    // What systemd makes of a drop-in: later lines count more.
    let with_gpu = installed.clone() + &text_of(DROP_IN);
    // Tenths; systemd calls up to 2.9 "OK" and 9.6 "UNSAFE".
    for text in [installed, with_gpu] {
        fs::write(&copy, text).expect("it is written");
        let Some((well, said)) = analyze(&["verify", "--man=no"], &copy) else {
            println!("skipped: systemd-analyze is not installed");
            return;
        };
        assert!(well, "{said}");
        assert!(!said.contains("duovec.service"), "a warning: {said}");
        let security = ["security", "--offline=true", "--threshold=20", "--no-pager"];
        let (safe, said) = analyze(&security, &copy).expect("it is installed");
        let verdict = said.lines().last().unwrap_or_default();
        println!("{verdict}");
        assert!(safe, "{said}");
    }
}

/// Runs the line of the drop-in as the service's user would.
#[test]
fn the_drop_in_for_gpus_copies_the_package_once_to_where_it_can_be_written() {
    let drop_in = text_of(DROP_IN).replace("\\\n", "");
    let value = |key: &str| {
        let found = drop_in.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{key} is not in: {drop_in}"))
    };
    let state = Path::new("/var/lib").join(value("StateDirectory"));
    assert!(Path::new(value("Environment=DUOVEC_PACKAGE")).starts_with(state));
    let script = value("ExecStartPre").strip_prefix("/bin/sh -c ").expect("a shell's");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let package = folder.path().join("package");
    // Of a start that was killed.
    fs::create_dir(folder.path().join("package.new")).expect("a folder can be made");
    let copy = || {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(script.trim_matches('\''));
        shell.env("DUOVEC_PACKAGE", &package).env("INSTALLED_PACKAGE", tiny());
        assert!(shell.status().expect("a shell is there").success());
    };
    copy();
    ModelPackage::open(&package).expect("it is whole");
    fs::write(package.join("a.plan"), "").expect("it can be written");
    copy();
    assert!(package.join("a.plan").exists(), "it was copied again");
    assert!(!folder.path().join("package.new").exists());
}

/// Every setting that the unit names is one of the program's.
#[test]
fn the_unit_names_settings_that_exist() {
    let text = text_of(UNIT) + &text_of(DROP_IN);
    for word in text.split(|c: char| !c.is_ascii_uppercase() && c != '_') {
        if word.starts_with("DUOVEC_") {
            let found = settings::SETTINGS.iter().any(|s| s.variable() == word);
            assert!(found, "{word}");
        }
    }
}
