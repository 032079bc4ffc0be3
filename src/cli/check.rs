//! `duovec check`: whether a package is whole, and whether this machine computes its golden
//! numbers.
//!
//! One line for each file, plan, library, driver and GPU, and one for the engine; each line that is
//! not well says what to do.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::bail;

use crate::engine::run_canary;
use clock::{Clock, RealClock};
use model::package::ModelPackage;
use model::package::manifest::{Manifest, ModelKind, PromptName};
use scheduling::batch::plan::ROW_TOKENS;
use settings::{Config, EngineKind};

use super::load::{Loaded, Measuring, load, not_whole};

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod gpu;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Well,
    /// It is absent, and nothing that was asked for needs it.
    NotNeeded,
    /// It must be repaired.
    Bad,
}

#[derive(Debug, Default)]
struct Findings {
    bad: Vec<String>,
}

impl Findings {
    fn say(&mut self, verdict: Verdict, subject: &str, text: &str) {
        let word = match verdict {
            Verdict::Well => "ok",
            Verdict::NotNeeded => "none",
            Verdict::Bad => "BAD",
        };
        if verdict == Verdict::Bad {
            self.bad.push(format!("{subject}: {text}"));
        }
        print(&format!("{word:<5} {subject}: {text}"));
    }

    /// Says what was found; if it was not found, why, with this verdict.
    fn tell<T: Display, E: Display>(
        &mut self,
        otherwise: Verdict,
        subject: &str,
        found: &Result<T, E>,
    ) {
        match found {
            Ok(found) => self.say(Verdict::Well, subject, &found.to_string()),
            Err(error) => self.say(otherwise, subject, &error.to_string()),
        }
    }
}

/// Prints a line, whether or not somebody reads it: the exit code tells as well.
fn print(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    let package = ModelPackage::read_manifest(&config.package)?;
    let mut findings = Findings::default();
    check_files(&package, &mut findings);
    #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
    gpu::check(config, &package, &mut findings);
    #[cfg(not(any(feature = "tensorrt", feature = "tensorrt-rtx")))]
    for plan in &package.manifest().plans {
        let text = "this program was built without TensorRT and leaves it alone";
        findings.say(Verdict::NotNeeded, &format!("plan {}", plan.file), text);
    }
    if let Some(first) = findings.bad.first() {
        let further = match findings.bad.len() {
            1 => String::new(),
            count => format!(" ({} more lines begin with BAD)", count - 1),
        };
        bail!("{} is not well: {first}{further}", config.package.display());
    }
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let package = package.with_default_prompt(config.default_prompt)?;
    let loaded = load(config, package, Measuring::Skip, &clock, &Arc::default())?;
    check_engine(config, &loaded, &mut findings)
}

fn check_files(package: &ModelPackage, findings: &mut Findings) {
    for (name, entry) in &package.manifest().files {
        let found = package.verify_file(name, entry).map_err(not_whole);
        let found = found.map(|()| format!("{} bytes, digest as listed", entry.bytes));
        findings.tell(Verdict::Bad, &format!("file {name}"), &found);
    }
}

fn check_engine(config: &Config, loaded: &Loaded, findings: &mut Findings) -> anyhow::Result<()> {
    let manifest = loaded.package.manifest();
    let info = loaded.chosen.engine.info();
    let bucket = loaded.chosen.shapes.row(manifest.canary.token_ids.len().max(ROW_TOKENS));
    let mut session = loaded.chosen.engine.open_session(&[bucket])?;
    let seen = run_canary(&mut *session, manifest, bucket)?;
    if !seen.passed() && config.engine.choice != Some(EngineKind::Fake) {
        bail!(
            "the canary's dense cosine is {:.6}, a weight is off by {:.4}",
            seen.dense_cosine,
            seen.sparse_error
        );
    }
    let engine = format!("engine {} {}", info.kind, info.version);
    let (precision, device, reason) = (&info.precision, &info.device, &loaded.chosen.reason);
    let text = format!("{precision} on {device}; canary: {seen}; {reason}");
    findings.say(Verdict::Well, &engine, &text);
    describe(manifest, findings);
    let text = format!("normalization {}", loaded.tokenizer.normalization().name());
    findings.say(Verdict::Well, "tokenizer", &text);
    let prompt = manifest.default_prompt.map_or("none", PromptName::name);
    findings.say(Verdict::Well, "default prompt", prompt);
    findings.say(Verdict::Well, "token ids as input", config.token_input.name());
    let room = match config.queue.cache_bytes.get() {
        0 => "off".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    findings.say(Verdict::Well, "cache of vectors", &room);
    let dimensions = format!("{} dimensions", manifest.hidden_size);
    let gives = match (manifest.kind, manifest.token_vector_size) {
        (ModelKind::CrossEncoder, _) => "scores of pairs".to_owned(),
        (ModelKind::Sparse, _) => "lexical weights".to_owned(),
        (ModelKind::Embedding, None) => dimensions,
        (ModelKind::Embedding, Some(size)) => format!("{dimensions}, {size} of a token's vector"),
    };
    print(&format!(
        "{} is whole: {} revision {}, {gives}, {} tokens",
        loaded.package.directory().display(),
        manifest.model_id,
        manifest.revision,
        manifest.max_input_tokens
    ));
    Ok(())
}

/// What decides a text's vector, and where the script that made the package found it.
fn describe(manifest: &Manifest, findings: &mut Findings) {
    let prompt = |name: &PromptName| {
        manifest.prompts.text(*name).map(|text| format!("{} {text:?}", name.name()))
    };
    let prompts: Vec<String> = PromptName::ALL.iter().filter_map(prompt).collect();
    let prompts = match prompts.is_empty() {
        true => "none, so that input_type changes nothing".to_owned(),
        false => prompts.join(", "),
    };
    let dimensions: Vec<String> = manifest.dimensions().iter().map(usize::to_string).collect();
    let dimensions = match manifest.kind {
        ModelKind::CrossEncoder => "none, so that only re-ranking is served".to_owned(),
        ModelKind::Sparse => "none, so that only lexical weights are served".to_owned(),
        ModelKind::Embedding => dimensions.join(", "),
    };
    let sparse = manifest.sparse.as_ref().map_or("none", |head| &head.head);
    let names = [std::slice::from_ref(&manifest.model_id), &manifest.aliases].concat();
    for (subject, field, value) in [
        ("names", "aliases", names.join(", ")),
        ("kind", "kind", manifest.kind.name().to_owned()),
        ("pooling", "pooling", manifest.pooling.name().to_owned()),
        ("tokens of a text", "max_input_tokens", manifest.max_input_tokens.to_string()),
        ("dimensions", "matryoshka_dimensions", dimensions),
        ("prompts", "prompts", prompts),
        ("lexical weights", "sparse", sparse.to_owned()),
    ] {
        let source = manifest.sources.get(field);
        let text = source.map_or_else(|| value.clone(), |source| format!("{value} ({source})"));
        findings.say(Verdict::Well, subject, &text);
    }
    if let Some(weights) = manifest.sources.get("weights") {
        findings.say(Verdict::Well, "weights", weights);
    }
    if let Some(largest) = &manifest.largest {
        let of = |layers: &[f32]| layers.iter().copied().fold(0.0, f32::max);
        let text = format!(
            "scores {}, feed-forward {}, values {}, others {} over {} texts; that of fp16 is 65504",
            of(&largest.scores),
            of(&largest.feed_forward),
            of(&largest.values),
            of(&largest.other),
            largest.texts
        );
        findings.say(Verdict::Well, "largest numbers", &text);
    }
}
