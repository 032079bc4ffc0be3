//! Starting the binary, reading what it says, packages to break.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use model::package::digest;
use reqwest::{RequestBuilder, Response};
use testing::{copy_of, joined};
use tokio::task::JoinHandle;

pub(crate) use serde_json::{Value, json};
pub(crate) use testing::tiny;

/// The binary with an environment that has none of our settings but the place of the libraries.
pub(crate) fn duovec() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duovec"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("DUOVEC_") && name != "DUOVEC_OPENVINO_LIBRARY_DIR" {
            command.env_remove(name);
        }
    }
    command
}

/// A command with a package, the fake engine, and a log of errors only; `more` may say otherwise.
pub(crate) fn quick(command: &str, package: impl AsRef<Path>, more: &[&str]) -> Command {
    let mut quick = duovec();
    quick.arg(command);
    for usual in [["--engine", "fake"], ["--log-level", "error"]] {
        if !more.contains(&usual[0]) {
            quick.args(usual);
        }
    }
    quick.args(more).arg("--package").arg(package.as_ref());
    quick
}

/// A server of the tiny package with OpenVINO that is ready.
pub(crate) fn ready(more: &[&str]) -> Server {
    Server::ready(duovec().args(["serve", "--package"]).arg(tiny()).args(more))
}

/// One with the fake engine.
pub(crate) fn ready_fake(more: &[&str]) -> Server {
    ready(&[&["--engine", "fake"], more].concat())
}

/// What a start that ended by itself left behind.
pub(crate) struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Checks how it ended.
    #[track_caller]
    pub(crate) fn with_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }
}

/// Checks that a text has these words, with `…` between those that may be apart.
#[track_caller]
pub(crate) fn has(text: &str, words: &str) {
    for word in words.split('…') {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().expect("the binary starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// One line on standard error (of errors only), which has these words.
#[track_caller]
pub(crate) fn assert_says(ended: &Ended, code: i32, words: &str) {
    ended.with_code(code);
    let lines: Vec<&str> =
        ended.stderr.lines().filter(|line| line.starts_with("duovec:")).collect();
    assert_eq!(lines.len(), 1, "{}", ended.stderr);
    has(lines[0], words);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// Ends a command by SIGKILL at random moments, and starts it again until it has succeeded by
/// itself. `DUOVEC_TEST_KILLS` sets how often; the seed is printed.
pub(crate) fn kill_and_repeat(command: impl Fn() -> Command, mean: Duration) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    let kills = number("DUOVEC_TEST_KILLS").unwrap_or(20);
    let seed = number("DUOVEC_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("DUOVEC_SEED={seed}, a kill about every {mean:?}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = 0;
    loop {
        let mut child = command().stderr(Stdio::null()).spawn().expect("it starts");
        if killed < kills {
            thread::sleep(mean.mul_f64(2.0 * random.f64()));
            // It may have come to its end.
            let _ = child.kill();
        }
        let status = child.wait().expect("it is a child");
        if status.success() {
            break;
        }
        assert_eq!(status.code(), None, "it was killed, and never refused to go on");
        killed += 1;
    }
    println!("{killed} kills");
}

/// The binary in a process that may have so many files open; `limit` is what `ulimit` takes.
pub(crate) fn limited(limit: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]);
    command.arg(duovec().get_program());
    command
}

/// A server on a free port.
pub(crate) struct Server {
    pub address: SocketAddr,
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Server {
    /// Starts a command that serves, and waits until it says where it listens.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .args(["--port", "0", "--log-format", "json"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let line = next_with(&mut stderr, "address");
        let address = line["address"].as_str().expect("a text").parse().expect("an address");
        Self { address, child, stderr }
    }

    /// The same, and waits until it is ready.
    pub(crate) fn ready(command: &mut Command) -> Self {
        let mut server = Self::spawn(command);
        server.wait_for("ready");
        server
    }

    /// Reads the log up to the line with this message.
    pub(crate) fn wait_for(&mut self, message: &str) -> Value {
        loop {
            let line = next_with(&mut self.stderr, "message");
            if line["message"].as_str().is_some_and(|text| text.contains(message)) {
                return line;
            }
        }
    }

    /// The log from here to the end.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("the log is UTF-8");
        rest
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request for the vector of a text.
    pub(crate) fn text(&self, text: &str) -> RequestBuilder {
        client().post(self.url("/v1/embeddings")).json(&json!({"input": text}))
    }

    /// Sends such a request, whose answer is for the caller to wait for.
    pub(crate) fn begin(&self, text: &str) -> JoinHandle<reqwest::Result<Response>> {
        tokio::spawn(self.text(text).send())
    }

    /// A request whose body never comes whole.
    pub(crate) fn half_a_request(&self) -> TcpStream {
        let mut half = TcpStream::connect(self.address).expect("it listens");
        let head = "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
        half.write_all(head.as_bytes()).expect("it is open");
        half
    }

    /// The body of the answer to a GET.
    pub(crate) async fn read(&self, path: &str) -> String {
        let answer = client().get(self.url(path)).send().await.expect("an answer");
        answer.text().await.expect("text")
    }

    /// Sends a signal by its name, as a supervisor would.
    pub(crate) fn signal(&self, name: &str) {
        self.signals(&[name]);
    }

    /// Sends signals by one process, so that no time passes between them on a busy machine either.
    pub(crate) fn signals(&self, names: &[&str]) {
        let pid = self.child.id();
        let kills: String = names.iter().map(|name| format!("kill -s {name} {pid}; ")).collect();
        let sent = Command::new("sh").args(["-ec", &kills]).status().expect("a shell is there");
        assert!(sent.success());
    }

    /// The process that was started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the child ends")
    }

    /// Asks for the end, which must be one without a fault.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.signal("TERM");
        assert_eq!(self.wait().code(), Some(0));
    }

    /// Asks this path until the answer is as wanted.
    pub(crate) async fn wait_until(&self, path: &str, wanted: impl Fn(&str) -> bool) {
        let is_as_wanted = async || wanted(&self.read(path).await);
        eventually(PATIENCE, &format!("{path} has what was waited for"), is_as_wanted).await;
    }

    /// Asks until a worker runs, so that the next signal meets a request in flight.
    pub(crate) async fn wait_for_busy(&self) {
        let is_busy = |health: &str| {
            serde_json::from_str::<Value>(health).expect("JSON")["workers"]["busy"] == 1
        };
        self.wait_until("/health", is_busy).await;
    }

    /// Waits for the answer to a GET or, with a body, to a POST.
    pub(crate) async fn ask(&self, path: &str, body: Option<&Value>) -> (u16, Value) {
        let client = client();
        let request = match body {
            None => client.get(self.url(path)),
            Some(body) => client.post(self.url(path)).json(body),
        };
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    }

    /// Waits for the end; `None` when the process is still there after `time`.
    pub(crate) fn wait_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next JSON line that has `field`.
fn next_with(stderr: &mut BufReader<ChildStderr>, field: &str) -> Value {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        let count = stderr.read_line(&mut line).expect("the log is UTF-8");
        assert!(count > 0, "the server ended: {seen}");
        seen.push_str(&line);
        if let Ok(value) = serde_json::from_str::<Value>(&line)
            && value.get(field).is_some()
        {
            return value;
        }
    }
}

/// Ends a command by SIGKILL as soon as it has made this file; what is done `before` that.
pub(crate) fn kill_at(mut command: Command, file: &Path, before: impl FnOnce()) {
    let mut child = command.spawn().expect("it starts");
    while !file.exists() {
        assert!(child.try_wait().expect("a child").is_none(), "it runs");
        thread::sleep(Duration::from_millis(5));
    }
    before();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// A folder for the files of a test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("it is there")
    }

    /// The lines of a file in JSON.
    pub(crate) fn lines(&self, name: &str) -> Vec<Value> {
        let text = String::from_utf8(self.bytes(name)).expect("UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("it is written");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("it is there");
    }
}

/// What a package's manifest says.
pub(crate) fn manifest_of(package: &Path) -> Value {
    let bytes = fs::read(package.join("manifest.json")).expect("it is there");
    serde_json::from_slice(&bytes).expect("it is JSON")
}

/// A copy of the tiny package that can be broken.
pub(crate) struct Broken {
    directory: tempfile::TempDir,
}

impl Broken {
    pub(crate) fn new() -> Self {
        Self::of("tiny")
    }

    /// A copy of another package of the fixtures.
    pub(crate) fn of(fixture: &str) -> Self {
        Self { directory: copy_of(fixture) }
    }

    /// One that says more in its manifest.
    pub(crate) fn with(more: &Value) -> Self {
        let package = Self::new();
        package.say(more);
        package
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Changes a file and tells the manifest its new size and digest.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) {
        fs::write(self.file(name), bytes).expect("it is written");
        let entry = json!({"sha256": digest::of_bytes(bytes), "bytes": bytes.len()});
        self.manifest(|manifest| manifest["files"][name] = entry);
    }

    /// From now on the manifest says this, too.
    pub(crate) fn say(&self, more: &Value) {
        self.manifest(|manifest| *manifest = joined(manifest.take(), more));
    }

    /// Changes the manifest.
    pub(crate) fn manifest(&self, change: impl FnOnce(&mut Value)) {
        let mut manifest = manifest_of(self.path());
        change(&mut manifest);
        fs::write(self.file("manifest.json"), manifest.to_string()).expect("it is written");
    }
}

/// No answer takes this long, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something is reached, which must be within `time`.
pub(crate) async fn eventually(time: Duration, what: &str, reached: impl AsyncFn() -> bool) {
    let end = Instant::now() + time;
    while !reached().await {
        assert!(Instant::now() < end, "it never happened that {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// A client that gives up instead of hanging.
pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(PATIENCE).build().expect("a client")
}
