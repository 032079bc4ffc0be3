//! `duovec embed`: a whole corpus into files of vectors, without HTTP.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::load::{need_embeddings, package};
use super::offline::{Production, refuse_standard_output};
use super::{Incomplete, switch, value};
use crate::corpus::{
    Columns, CorpusChunks, CorpusError, DENSE_TYPES, InputFile, InputFormat, InputRows,
    OutputFormat, OutputTarget, Recipe, Terms, TextMaker, Totals, VECTORS, WindowLimits, Windows,
};
use crate::service::{InputType, ignores};
use model::package::ModelPackage;
use model::package::manifest::{Manifest, ModelKind};
use scheduling::batch::Vectors;
use settings::Config;
use vectors::sparse::Selection;

/// Rows of a part when nobody says: enough to sort by length, seconds to minutes of work.
const PART_ROWS: &str = "8192";
/// Bytes of text and kept columns after which a part ends before it has so many rows.
const PART_BYTES: usize = 64 * 1024 * 1024;

const INPUT_TYPES: [(&str, InputType); 3] =
    [("passage", InputType::Passage), ("query", InputType::Query), ("default", InputType::Default)];

fn chunk_arguments() -> [Arg; 3] {
    [
        value(
            "chunk-tokens",
            "N",
            "cut texts into chunks of so many tokens; each is a row of the output",
        ),
        value("chunk-overlap", "N", "tokens of a chunk that the next one has too [default: 0]"),
        switch("late", "pool chunks out of the run of their whole text"),
    ]
}

pub(super) fn command() -> Command {
    Command::new("embed")
        .about("Embeds a corpus into files; after an interruption the same command goes on")
        .arg(
            Arg::new("INPUT")
                .required(true)
                .num_args(1..)
                .help("files or patterns: .jsonl, .csv, .parquet, .txt; - is standard input"),
        )
        .arg(
            value(
                "out",
                "PATH",
                "a folder of parts, or a file that ends in .parquet, .jsonl or .npy",
            )
            .required(true),
        )
        .arg(word(
            "input-format",
            "what the files hold [default: by their names]",
            &InputFormat::WORDS,
        ))
        .arg(word("format", "what a folder's parts are [default: parquet]", &OutputFormat::WORDS))
        .arg(
            value("text-column", "NAME", "the column or field that is embedded")
                .default_value("text"),
        )
        .arg(
            value("keep", "A,B", "columns or fields that are written beside the vectors")
                .value_delimiter(','),
        )
        .arg(word("vectors", "which vectors [default: both, if the model has both]", &VECTORS))
        .arg(
            word(
                "input-type",
                "which of the model's prompts is put in front of texts",
                &INPUT_TYPES,
            )
            .default_value("passage"),
        )
        .arg(value("dimensions", "N", "floats of a dense vector [default: the model's own]"))
        .arg(word("dense-type", "how they are stored", &DENSE_TYPES).default_value("f32"))
        .arg(value("sparse-top-k", "N", "keep so many of the heaviest lexical weights"))
        .arg(value("sparse-min-weight", "WEIGHT", "keep lexical weights at or above it"))
        .args(chunk_arguments())
        .arg(
            value("part-rows", "N", "rows of a part; an interruption costs the unfinished parts")
                .default_value(PART_ROWS),
        )
        .after_help(
            "Rows that cannot be embedded go to a side file with the reason, and the exit code is \
             3. Each setting is also a variable, as with `duovec serve`.",
        )
}

pub(super) fn embed(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
    let package = package(config)?;
    need_embeddings(package.manifest())?;
    let texts = |name: &str| -> Vec<String> {
        typed.get_many::<String>(name).into_iter().flatten().cloned().collect()
    };
    let out = PathBuf::from(typed.get_one::<String>("out").expect("clap asks for it"));
    if out.as_os_str().is_empty() {
        // A shell's variable that is not set; the current folder would be taken.
        return Err(wrong("--out is empty: name a file or a folder").into());
    }
    refuse_standard_output("--out", &out)?;
    let target = OutputTarget::new(out, typed.get_one("format").copied())?;
    let recipe = recipe(package.manifest().clone(), &target, typed)?;
    tell_of_missing_prompts(package.manifest(), typed);
    let text = typed.get_one::<String>("text-column").expect("it has a default").clone();
    let columns = Columns { text, kept: texts("keep") };
    target.check(&columns, &recipe)?;
    let rows = number(typed, "part-rows")?.filter(|&rows: &usize| rows > 0);
    let rows = rows.ok_or_else(|| wrong("--part-rows: use a whole number above zero"))?;
    let limits = WindowLimits { rows, bytes: PART_BYTES };
    let names = texts("INPUT");
    let format = typed.get_one("input-format").copied();
    let files = InputFile::find(&names, format, &target.side_paths())?;
    InputFile::refuse_output(&files, &names, &target.path, &target.part_path(0))?;
    let input = InputRows::new(&files, columns.clone(), config.http.max_item_bytes.as_usize());
    let mut windows = Windows::new(input, limits);
    target.format.check_types(windows.look()?)?;
    let terms = recipe
        .complete(Terms::of_model(config, package.manifest()))
        .and("format", target.format.name())
        .and("text_column", &columns.text)
        .and("kept_columns", columns.kept.join(","))
        .and("part_rows", rows)
        .and("part_bytes", PART_BYTES);
    let (format, rejected_path) = (target.format, target.rejected_path());
    let (path, length) = (target.path.clone(), windows.input_length());
    let production = Production { package, target, terms, windows, length };
    let maker = |_: ModelPackage, tokenizer, terms: &Terms| TextMaker {
        recipe,
        tokenizer,
        terms: terms.clone(),
        kept: columns.kept,
        format,
    };
    let Totals { embedded, rejected, tokens } = production.run(config, maker)?;
    tracing::info!(embedded, rejected, tokens, out = %path.display(), "embedded");
    if rejected == 0 {
        return Ok(());
    }
    let (rows, side) = (embedded + rejected, rejected_path.display());
    let message =
        format!("{rejected} of {rows} rows could not be embedded; {side} has each with its reason");
    Err(Incomplete(message).into())
}

/// A model without any prompt takes every input type, as the server does, whose answers say so in a
/// header.
fn tell_of_missing_prompts(manifest: &Manifest, typed: &ArgMatches) {
    let is_typed = typed.value_source("input-type") == Some(ValueSource::CommandLine);
    let &asked = typed.get_one("input-type").expect("it has a default");
    if is_typed && ignores(manifest, asked) {
        tracing::warn!("the model has no prompts, so that --input-type changes nothing");
    }
}

fn recipe(
    manifest: Manifest,
    target: &OutputTarget,
    typed: &ArgMatches,
) -> Result<Recipe, CorpusError> {
    let has_both = manifest.sparse.is_some() && target.format != OutputFormat::Npy;
    let default = match manifest.kind {
        ModelKind::Sparse => Vectors::Sparse,
        _ if has_both => Vectors::Both,
        _ => Vectors::Dense,
    };
    let min_weight: Option<f32> = number(typed, "sparse-min-weight")?;
    if min_weight.is_some_and(|least| !least.is_finite() || least < 0.0) {
        return Err(wrong("--sparse-min-weight: use a number, zero or above"));
    }
    let top_k: Option<usize> = number(typed, "sparse-top-k")?;
    if top_k == Some(0) {
        return Err(wrong("--sparse-top-k: use a whole number above zero"));
    }
    let input_type = *typed.get_one("input-type").expect("it has a default");
    let recipe = Recipe {
        vectors: typed.get_one("vectors").copied().unwrap_or(default),
        prompt: Recipe::prompt(&manifest, input_type)?,
        dimensions: number(typed, "dimensions")?.unwrap_or(manifest.hidden_size),
        selection: Selection { top_k, min_weight },
        numbers: *typed.get_one("dense-type").expect("it has a default"),
        chunks: chunks(typed)?,
        manifest,
    };
    recipe.check()?;
    Ok(recipe)
}

fn chunks(typed: &ArgMatches) -> Result<Option<CorpusChunks>, CorpusError> {
    let tokens: Option<usize> = number(typed, "chunk-tokens")?;
    let overlap: Option<usize> = number(typed, "chunk-overlap")?;
    let late = typed.get_flag("late");
    let Some(tokens) = tokens else {
        if overlap.is_some() || late {
            return Err(wrong("--chunk-overlap and --late are for chunks; add --chunk-tokens"));
        }
        return Ok(None);
    };
    let overlap = overlap.unwrap_or(0);
    if tokens == 0 {
        return Err(wrong("--chunk-tokens: use a whole number above zero"));
    }
    if overlap >= tokens {
        let problem = format!("{overlap} must be below --chunk-tokens, which is {tokens}");
        return Err(wrong(format!("--chunk-overlap: {problem}")));
    }
    Ok(Some(CorpusChunks { tokens, overlap, late }))
}

/// An option whose value is one of `words`.
fn word<T: Copy + Send + Sync + 'static>(
    name: &'static str,
    help: &'static str,
    words: &'static [(&'static str, T)],
) -> Arg {
    let known = PossibleValuesParser::new(words.iter().map(|(word, _)| *word));
    let meant = |typed: String| words.iter().find(|(word, _)| *word == typed).map(|(_, it)| *it);
    let meant = move |typed| meant(typed).expect("clap takes no other word");
    value(name, "WORD", help).value_parser(known.map(meant))
}

fn number<T: FromStr>(typed: &ArgMatches, name: &str) -> Result<Option<T>, CorpusError> {
    let Some(text) = typed.get_one::<String>(name) else { return Ok(None) };
    let no_number = |_| wrong(format!("--{name}: '{text}' is no such number"));
    text.parse().map(Some).map_err(no_number)
}

fn wrong(problem: impl Into<String>) -> CorpusError {
    CorpusError::Options(problem.into())
}
