//! Why a run ended before all of the corpus was embedded. Each message says what was wrong, where,
//! and how to continue.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What ended a run. Parts that were finished before stay valid.
#[derive(Debug, Error)]
pub(crate) enum CorpusError {
    #[error("cannot read {}: {problem}", .path.display())]
    Input { path: PathBuf, problem: String },
    #[error("cannot write {}: {problem}; finished parts are kept: correct this and run the \
             same command again, which continues after them", .path.display())]
    Output { path: PathBuf, problem: String },
    #[error("cannot continue {}: {problem}", .path.display())]
    Destination { path: PathBuf, problem: String },
    /// What was typed cannot be meant: it does not fit the model or the form of the output.
    #[error("{0}")]
    Options(String),
    #[error("{0}")]
    Empty(&'static str),
    #[error(
        "the model cannot be run any more: {0}; finished parts are kept: run the same command \
             again, which continues after them"
    )]
    Engine(String),
    #[error(
        "the tokenizer panicked, which is a fault of this program: {0}; finished parts are kept"
    )]
    Tokenizer(String),
}

impl CorpusError {
    /// A file of the command line that cannot be read.
    pub(crate) fn wrong_name(path: &Path, problem: impl Display) -> Self {
        Self::Options(format!("cannot read {}: {problem}", path.display()))
    }

    pub(crate) fn input(path: &Path, problem: impl ToString) -> Self {
        Self::Input { path: path.to_owned(), problem: problem.to_string() }
    }

    pub(super) fn output(path: &Path, problem: impl ToString) -> Self {
        Self::Output { path: path.to_owned(), problem: problem.to_string() }
    }

    pub(super) fn destination(path: &Path, problem: impl ToString) -> Self {
        Self::Destination { path: path.to_owned(), problem: problem.to_string() }
    }

    /// What turns an error of the operating system into one of the output.
    pub(super) fn writing(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        move |error| Self::output(path, error)
    }
}
