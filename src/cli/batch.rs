//! `duovec batch`: a file of requests as OpenAI's Batch API takes them, answered without HTTP, in
//! the order of the requests.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use clap::{ArgMatches, Command};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::load::{need_embeddings, package};
use super::offline::{Production, refuse_standard_output};
use super::{Incomplete, value};
use crate::corpus::{
    CorpusError, InputFile, Lines, Maker, NewPart, OutputTarget, PieceDigest, Terms, Totals,
    Window, is_folder, on_all_cores, stream,
};
use crate::http::offline::{self, Answered, Asked};
use crate::scheduler::TextRow;
use crate::service::EmbeddingService;
use crate::service::chunking::TextsToRun;
use clock::RealClock;
use model::package::ModelPackage;
use model::package::manifest::{Manifest, PromptName};
use model::tokenize::TextTokenizer;
use scheduling::batch::TokenIds;
use settings::{Config, HttpConfig};

/// Texts, or lines, with which a part ends: what an end of the run costs at most. Enough to sort by
/// length.
const PART_ITEMS: usize = 1024;
/// Bytes of the input after which a part ends before it has so many.
const PART_BYTES: u64 = 64 * 1024 * 1024;

pub(super) fn command() -> Command {
    let file = |name, short, help| {
        let path = clap::value_parser!(PathBuf);
        value(name, "FILE", help).short(short).value_parser(path).required(true)
    };
    Command::new("batch")
        .about("Answers a file of requests, as OpenAI's Batch API has them")
        .arg(file("input", 'i', "JSON lines: custom_id, method, url, body"))
        .arg(file("output", 'o', "JSON lines: id, custom_id, response, error; in the same order"))
        .after_help(
            "When a request cannot be answered, its line says why, and the exit code is 3. After \
             an interruption the same command goes on. Each setting is also a variable, as with \
             `duovec serve`.",
        )
}

pub(super) fn batch(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
    let path = |name: &str| typed.get_one::<PathBuf>(name).expect("clap asks for it");
    let (input, output) = (path("input"), path("output"));
    refuse_standard_output("--output", output)?;
    if input == Path::new("-") {
        let problem = "--input -: nothing is read from standard input, since a run that goes on \
                       reads its requests again; name a file (./- is a file named -)";
        return Err(CorpusError::Options(problem.to_owned()).into());
    }
    if input.is_dir() {
        return Err(CorpusError::wrong_name(input, "it is a folder; name a file").into());
    }
    if is_folder(output) {
        let problem = format!("--output {} is a folder: name a file", output.display());
        return Err(CorpusError::Options(problem).into());
    }
    let target = OutputTarget::lines(output.clone());
    if InputFile::is_side(input, &target.side_paths()) {
        let problem = "the run itself writes it beside its answers; name another file";
        return Err(CorpusError::wrong_name(input, problem).into());
    }
    let package = package(config)?;
    need_embeddings(package.manifest())?;
    let service = EmbeddingService::new(config, Arc::new(RealClock::new()));
    service.announce(package.manifest());
    let mut windows = Requests::open(input, &service, &config.http)?.peekable();
    if windows.peek().is_none() {
        return Err(CorpusError::Empty("the input is empty").into());
    }
    windows.next_if(Result::is_err).transpose()?;
    let length = std::fs::metadata(input).map_or(0, |found| found.len());
    let terms = terms(config, package.manifest());
    let production = Production { package, target, terms, windows, length };
    let maker = |package: ModelPackage, tokenizer, _: &Terms| AnswerMaker {
        service: &service,
        manifest: package.manifest().clone(),
        tokenizer,
    };
    let Totals { embedded, rejected, .. } = production.run(config, maker)?;
    let (all, output) = (embedded + rejected, output.display());
    tracing::info!(requests = all, failed = rejected, out = %output, "answered");
    if rejected == 0 {
        return Ok(());
    }
    let message = format!("{rejected} of {all} requests failed; their lines in {output} say why");
    Err(Incomplete(message).into())
}

/// What an answer depends on besides its request.
fn terms(config: &Config, manifest: &Manifest) -> Terms {
    let HttpConfig { max_items, max_body_bytes, truncate, dialects, .. } = &config.http;
    let dialects: Vec<&str> = dialects.iter().map(|dialect| dialect.name()).collect();
    let aliases = [&manifest.aliases[..], &config.model_aliases].concat();
    let default_prompt = manifest.default_prompt.map_or("none", PromptName::name);
    Terms::of_model(config, manifest)
        .and("answers", "duovec batch")
        .and("prompt_default", default_prompt)
        .and("model_aliases", aliases.join(","))
        .and("token_input", config.token_input.name())
        .and("max_items", max_items)
        .and("max_body_bytes", max_body_bytes)
        .and("truncate", truncate.name())
        .and("dialects", dialects.join(","))
        .and("part_items", PART_ITEMS)
        .and("part_bytes", PART_BYTES)
}

#[derive(Deserialize)]
struct BatchRequest<'a> {
    custom_id: String,
    method: Option<String>,
    url: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl<'a> BatchRequest<'a> {
    /// # Errors
    /// What is wrong with the line, in words.
    fn parse(line: &'a [u8]) -> Result<Self, String> {
        // To serde, a list of the fields' values would do.
        if !line.trim_ascii_start().starts_with(b"{") {
            return Err("it is not an object".to_owned());
        }
        serde_json::from_slice(line).map_err(|error| {
            let (said, column) = (error.to_string(), error.column());
            let place = format!(" at line {} column {column}", error.line());
            let said = said.strip_suffix(&place).unwrap_or(&said);
            match error.classify() {
                Category::Data => said.to_owned(),
                _ => format!("it is not valid JSON: {said} at column {column}"),
            }
        })
    }
}

/// The name that a line gives itself though it is no request, and what to send instead.
fn not_a_request(number: u64, line: &[u8], problem: String) -> RequestLine {
    let fields: Map<String, Value> = serde_json::from_slice(line).unwrap_or_default();
    let is_other =
        |name: &&str| fields.get(*name).is_some_and(|value| !value.is_string() && !value.is_null());
    let other = ["custom_id", "method", "url"].into_iter().find(is_other);
    let problem = other.map_or(problem, |name| format!("{name} is not a text"));
    let message = format!(
        "line {number} is not a request: send an object with custom_id, method, url and body; \
         {problem}"
    );
    let custom_id = fields.get("custom_id").and_then(Value::as_str).map(str::to_owned);
    RequestLine::invalid(number, custom_id, message)
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

#[derive(Clone)]
enum LineEnd {
    /// As the route answers.
    Answered(Answered),
    /// It is no request, and why.
    Invalid(String),
}

/// A line of the input that is not blank.
struct RequestLine {
    /// From 1.
    number: u64,
    custom_id: Option<String>,
    asked: Result<Asked, LineEnd>,
}

/// The input, window by window.
struct Requests<'a> {
    path: PathBuf,
    lines: Lines,
    service: &'a EmbeddingService,
    config: &'a HttpConfig,
    /// Digests of the `custom_id`s so far, and the line of each.
    custom_ids: HashMap<[u8; 32], u64>,
    /// For the first request that asks for a prompt in vain.
    warning: Once,
}

impl<'a> Requests<'a> {
    fn open(
        path: &Path,
        service: &'a EmbeddingService,
        config: &'a HttpConfig,
    ) -> Result<Self, CorpusError> {
        let file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => CorpusError::wrong_name(path, "there is no such file"),
            _ => CorpusError::wrong_name(path, error),
        })?;
        let (path, lines) = (path.to_owned(), Lines::of(Box::new(file)));
        let (custom_ids, warning) = (HashMap::new(), Once::new());
        Ok(Self { path, lines, service, config, custom_ids, warning })
    }

    fn read(&mut self) -> Result<Option<Window<Vec<RequestLine>>>, CorpusError> {
        let start = self.lines.position();
        let (mut requests, mut items, mut digest) = (Vec::new(), 0, PieceDigest::default());
        while items < PART_ITEMS && self.lines.position() - start < PART_BYTES {
            let line = self.lines.next().map_err(|error| CorpusError::input(&self.path, error))?;
            let Some(line) = line.map(|line| line.map(<[u8]>::to_vec)) else { break };
            if line.as_ref().is_ok_and(|line| line.trim_ascii().is_empty()) {
                continue;
            }
            let number = self.lines.number();
            digest.add(number.to_le_bytes());
            digest.add(line.as_deref().unwrap_or_else(|problem| problem.as_bytes()));
            let request = self.request(number, line);
            let request = self.refuse_known_id(request);
            items += request.asked.as_ref().map_or(1, Asked::items);
            requests.push(request);
        }
        let Some(first) = requests.first() else { return Ok(None) };
        let place = format!("line {} of {}", first.number, self.path.display());
        let (digest, bytes) = (digest.finish(), self.lines.position() - start);
        Ok(Some(Window { content: requests, digest, place, bytes }))
    }

    /// By its `custom_id` a client finds an answer, so two requests cannot have the same.
    fn refuse_known_id(&mut self, request: RequestLine) -> RequestLine {
        let RequestLine { number, custom_id: Some(id), .. } = &request else { return request };
        let first = *self.custom_ids.entry(Sha256::digest(id).into()).or_insert(*number);
        if first == *number {
            return request;
        }
        let message = format!(
            "line {number} has the custom_id of line {first}; give each request one of its own"
        );
        RequestLine::invalid(*number, request.custom_id, message)
    }

    fn request(&self, number: u64, line: Result<Vec<u8>, String>) -> RequestLine {
        let line = match line {
            Ok(line) => line,
            Err(problem) => return RequestLine::invalid(number, None, problem),
        };
        let BatchRequest { custom_id, method, url, body } = match BatchRequest::parse(&line) {
            Ok(asked) => asked,
            Err(problem) => return not_a_request(number, &line, problem),
        };
        let asked = match method.as_deref() {
            None | Some("POST") => {
                let body = body.get().as_bytes();
                offline::read(self.service, self.config, &url, body).map_err(LineEnd::Answered)
            }
            Some(_) => {
                let message = format!("the method of line {number} is not POST; use POST");
                Err(LineEnd::Invalid(message))
            }
        };
        if asked.as_ref().is_ok_and(|asked| asked.asks_in_vain(self.service)) {
            self.warning.call_once(|| {
                tracing::warn!(
                    line = number,
                    "the model has no prompts, so that input_type changes nothing"
                );
            });
        }
        RequestLine { number, custom_id: Some(custom_id), asked }
    }
}

impl Iterator for Requests<'_> {
    type Item = Result<Window<Vec<RequestLine>>, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

struct AnswerMaker<'a> {
    service: &'a EmbeddingService,
    manifest: Manifest,
    tokenizer: TextTokenizer,
}

/// The requests of a window, each with the ids of its texts.
struct TokenizedRequests {
    requests: Vec<RequestLine>,
    texts: Vec<Result<TextsToRun, LineEnd>>,
}

impl Maker for AnswerMaker<'_> {
    const ITEMS: &'static str = "requests";
    type Content = Vec<RequestLine>;
    type Prepared = TokenizedRequests;

    fn prepare(
        &self,
        requests: Vec<RequestLine>,
    ) -> Result<(TokenizedRequests, Vec<TokenIds>), CorpusError> {
        let texts = on_all_cores(&requests, |request| {
            let asked = request.asked.as_ref().map_err(Clone::clone)?;
            let texts = asked.tokenize(self.service, &self.manifest, &self.tokenizer);
            texts.map_err(LineEnd::Answered)
        })?;
        let items = texts.iter().flatten().flat_map(|texts| &texts.run);
        let items = items.map(|item| item.ids.clone()).collect();
        Ok((TokenizedRequests { requests, texts }, items))
    }

    fn part<'a>(&'a self, prepared: &'a TokenizedRequests, rows: Vec<TextRow>) -> NewPart<'a> {
        let mut rows = rows.into_iter();
        let (mut totals, mut lines) = (Totals::default(), Vec::new());
        for (request, texts) in prepared.requests.iter().zip(&prepared.texts) {
            let end = match (&request.asked, texts) {
                (Ok(asked), Ok(texts)) => {
                    let tokens = texts.run.iter().map(|text| text.ids.len() as u64);
                    totals.tokens += tokens.sum::<u64>();
                    let rows = rows.by_ref().take(texts.run.len());
                    let answered = asked.answer(&self.manifest, &self.tokenizer, texts, rows);
                    LineEnd::Answered(answered)
                }
                (_, Err(end)) | (Err(end), _) => end.clone(),
            };
            let is_ok = matches!(&end, LineEnd::Answered(answered) if answered.is_ok());
            totals.embedded += u64::from(is_ok);
            totals.rejected += u64::from(!is_ok);
            request.write(&end, &mut lines);
        }
        let write = Box::new(move |path: &Path| stream(path, |out| Write::write_all(out, &lines)));
        NewPart { totals, reasons: Vec::new(), write }
    }
}

impl RequestLine {
    const fn invalid(number: u64, custom_id: Option<String>, message: String) -> Self {
        Self { number, custom_id, asked: Err(LineEnd::Invalid(message)) }
    }

    fn write(&self, end: &LineEnd, lines: &mut Vec<u8>) {
        let id = format!("batch_req_{:08}", self.number);
        let custom_id = self.custom_id.as_deref();
        let (response, error) = match end {
            LineEnd::Answered(Answered { status, body }) => {
                let body = serde_json::from_slice(body).expect("the routes answer JSON");
                (Some(Response { status_code: *status, request_id: &id, body }), None)
            }
            LineEnd::Invalid(message) => (None, Some(Fault { code: "invalid_line", message })),
        };
        let told = Told { id: &id, custom_id, response, error };
        serde_json::to_writer(&mut *lines, &told).expect("it has names and plain values");
        lines.push(b'\n');
    }
}
