//! The command `duovec`.

use std::process::ExitCode;

fn main() -> ExitCode {
    duovec::cli::run(std::env::args_os())
}
