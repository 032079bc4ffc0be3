//! `duovec batch`: a file of requests as OpenAI's Batch API takes them, answered without HTTP.
//!
//! Answers are in the order of the requests. They are written to `OUT.partial`, which gets its name
//! at the end; a run that is started again goes on behind the last whole line of it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Arg, ArgMatches, Command};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Incomplete;
use super::serve;
use crate::clock::{Clock, RealClock};
use crate::config::Config;
use crate::corpus::Lines;
use crate::http;
use crate::http::offline::{self, Answered};
use crate::service::EmbeddingService;
use crate::telemetry;

/// Requests that are answered at the same time; enough to fill batches with single texts.
const REQUESTS: usize = 256;
/// How long a request may take; nobody waits at the other end of a connection.
const REQUEST_TIME: Duration = Duration::from_secs(3600);
/// How often a request is tried that finds no room.
const TRIES: u32 = 1000;
/// The longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the workers may take to end.
const END_TIME: Duration = Duration::from_secs(10);

/// What can be typed besides the settings.
pub(super) fn command() -> Command {
    let file = |name: &'static str, short, help: &'static str| {
        let path = clap::value_parser!(PathBuf);
        Arg::new(name)
            .long(name)
            .short(short)
            .value_name("FILE")
            .value_parser(path)
            .required(true)
            .help(help)
    };
    Command::new("batch")
        .about("Answers a file of requests, as OpenAI's Batch API has them")
        .arg(file("input", 'i', "JSON lines: custom_id, method, url, body"))
        .arg(file("output", 'o', "JSON lines: id, custom_id, response, error; in the same order"))
        .after_help(
            "When a request cannot be answered, its line says why, and the exit code is 3. A run \
             that was ended goes on where it was. Each setting is also a variable, as with \
             `duovec serve`.",
        )
}

/// A line of the input.
#[derive(Deserialize)]
struct BatchRequest<'a> {
    custom_id: String,
    method: Option<String>,
    url: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// A line of the output.
#[derive(Serialize)]
struct Told<'a> {
    id: &'a str,
    custom_id: Option<&'a str>,
    response: Option<Response<'a>>,
    error: Option<Fault<'a>>,
}

#[derive(Serialize)]
struct Response<'a> {
    status_code: u16,
    request_id: &'a str,
    body: &'a RawValue,
}

#[derive(Serialize)]
struct Fault<'a> {
    code: &'a str,
    message: &'a str,
}

/// How many requests ended how.
#[derive(Debug, Clone, Copy, Default)]
struct LineCounts {
    all: u64,
    failed: u64,
}

/// Answers every request of the file.
pub(super) fn batch(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
    telemetry::init(&config.log);
    let path = |name: &str| typed.get_one::<PathBuf>(name).expect("clap asks for it");
    let (input, output) = (path("input"), path("output"));
    if output.exists() {
        bail!("{} is there already; remove it, or name another file", output.display());
    }
    let mut requests = Requests::open(input)?;
    let mut answers = Answers::open(output)?;
    let mut counts = answers.pass_over(&mut requests)?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let service = serve::service(config, Arc::clone(&clock));
    let pool = serve::start(config, &service, clock)?;
    let outcome = http::block_on(async {
        let answered = answer_all(&service, config, &mut requests, &mut answers, &mut counts);
        let outcome = tokio::select! {
            biased;
            reason = pool.failed() => Err(serve::pool_lost(&reason)),
            answered = answered => answered,
        };
        pool.shutdown(END_TIME).await;
        outcome
    });
    outcome?;
    answers.finish()?;
    let LineCounts { all, failed } = counts;
    tracing::info!(requests = all, failed, out = %output.display(), "answered");
    if failed == 0 {
        return Ok(());
    }
    let output = output.display();
    Err(Incomplete(format!("{failed} of {all} requests failed; their lines in {output} say why"))
        .into())
}

async fn answer_all(
    service: &EmbeddingService,
    config: &Config,
    requests: &mut Requests,
    answers: &mut Answers,
    counts: &mut LineCounts,
) -> anyhow::Result<()> {
    let lines = stream::iter(std::iter::from_fn(|| requests.next().transpose()));
    let one =
        async |line: anyhow::Result<InputLine>| anyhow::Ok(answer(service, config, line?).await);
    let mut told = std::pin::pin!(lines.map(one).buffered(REQUESTS));
    while let Some(one) = told.next().await {
        let (line, failed) = one?;
        answers.write(&line)?;
        counts.all += 1;
        counts.failed += u64::from(failed);
    }
    Ok(())
}

/// The line of an answer, and whether it is one of a failure.
async fn answer(service: &EmbeddingService, config: &Config, line: InputLine) -> (Vec<u8>, bool) {
    let id = format!("batch_req_{:08}", line.number);
    let asked = line.text.as_deref().map_err(Clone::clone).and_then(|text| {
        let wrong = |error| format!("line {} is not a request: {error}", line.number);
        let asked: BatchRequest<'_> = serde_json::from_slice(text).map_err(wrong)?;
        match asked.method.as_deref() {
            None | Some("POST") => Ok(asked),
            Some(_) => Err(format!("line {} has another method; use POST", line.number)),
        }
    });
    match asked {
        Ok(asked) => {
            let answered = tried(service, config, &asked).await;
            let body = serde_json::from_slice(&answered.body).expect("the routes answer JSON");
            let response = Some(Response { status_code: answered.status, request_id: &id, body });
            let custom_id = Some(asked.custom_id.as_str());
            (told(&Told { id: &id, custom_id, response, error: None }), !answered.is_ok())
        }
        Err(message) => {
            let error = Some(Fault { code: "invalid_line", message: &message });
            (told(&Told { id: &id, custom_id: None, response: None, error }), true)
        }
    }
}

/// Asks until there is room: the other requests of the file take it for a while.
async fn tried(service: &EmbeddingService, config: &Config, asked: &BatchRequest<'_>) -> Answered {
    let body = asked.body.get().as_bytes();
    let mut tries = 1;
    loop {
        let answered = offline::answer(service, &config.http, &asked.url, body, REQUEST_TIME).await;
        match answered.retry_after {
            Some(after) if tries < TRIES => tokio::time::sleep(after.min(WAIT_MAX)).await,
            _ => return answered,
        }
        tries += 1;
    }
}

fn told(line: &Told<'_>) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("it has names and plain values");
    bytes.push(b'\n');
    bytes
}

/// A line of the input, or why it was not kept.
struct InputLine {
    /// From 1.
    number: u64,
    text: Result<Vec<u8>, String>,
}

/// The input.
struct Requests {
    path: PathBuf,
    lines: Lines,
}

impl Requests {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path: path.to_owned(), lines: Lines::of(Box::new(file)) })
    }

    /// The next line that is not blank; `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<InputLine>> {
        loop {
            let read = self.lines.next();
            let read = read.with_context(|| format!("cannot read {}", self.path.display()))?;
            let Some(text) = read.map(|line| line.map(<[u8]>::to_vec)) else { return Ok(None) };
            if !text.as_ref().is_ok_and(|text| text.trim_ascii().is_empty()) {
                return Ok(Some(InputLine { number: self.lines.number(), text }));
            }
        }
    }
}

/// A line that an earlier run wrote: what is compared, and counted.
#[derive(Deserialize)]
struct WrittenLine {
    id: String,
    custom_id: Option<String>,
    response: Option<WrittenResponse>,
}

#[derive(Deserialize)]
struct WrittenResponse {
    status_code: u16,
}

impl WrittenLine {
    /// Whether it answers the request of this line of the input.
    fn answers(&self, line: &InputLine) -> bool {
        #[derive(Deserialize)]
        struct Named {
            custom_id: String,
        }
        let named = || serde_json::from_slice::<Named>(line.text.as_ref().ok()?).ok();
        self.id.ends_with(&format!("_{:08}", line.number))
            && (self.custom_id.is_none() || self.custom_id == named().map(|line| line.custom_id))
    }
}

/// The output until it is whole.
struct Answers {
    output: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
}

impl Answers {
    fn open(output: &Path) -> anyhow::Result<Self> {
        let mut partial = OsString::from(output);
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial);
        let file = file.with_context(|| format!("cannot write {}", partial.display()))?;
        Ok(Self { output: output.to_owned(), partial, file: BufWriter::new(file) })
    }

    /// Passes over the requests that an earlier run answered; what it did not end is cut off.
    fn pass_over(&mut self, requests: &mut Requests) -> anyhow::Result<LineCounts> {
        let cannot = || format!("cannot go on with {}", self.partial.display());
        let mut counts = LineCounts::default();
        let mut whole = 0;
        let mut line = Vec::new();
        let mut reader = BufReader::new(self.file.get_ref());
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).with_context(cannot)?;
            if !line.ends_with(b"\n") {
                break;
            }
            let before: WrittenLine = serde_json::from_slice(&line).with_context(cannot)?;
            let request = requests.next()?;
            if !request.as_ref().is_some_and(|line| before.answers(line)) {
                return Err(anyhow!("it answers other requests; remove it")).with_context(cannot);
            }
            let ok = before.response.is_some_and(|response| response.status_code == 200);
            counts.all += 1;
            counts.failed += u64::from(!ok);
            whole += length as u64;
        }
        let file = self.file.get_mut();
        file.set_len(whole).with_context(cannot)?;
        file.seek(SeekFrom::Start(whole)).with_context(cannot)?;
        Ok(counts)
    }

    fn write(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let written = self.file.write_all(line);
        written.with_context(|| self.advice())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        written.with_context(|| self.advice())?;
        let named = fs::rename(&self.partial, &self.output);
        named.with_context(|| format!("cannot write {}", self.output.display()))
    }

    fn advice(&self) -> String {
        format!(
            "cannot write {}; make room and run the same command again, which goes on behind its \
             last line",
            self.partial.display()
        )
    }
}
