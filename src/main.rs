//! The command `duovec`.

use std::process::ExitCode;

/// Buffers go from the connections' threads to the workers' and back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = duovec::allocator::set_up() {
        eprintln!("duovec: no thread can be started: {error}");
        return ExitCode::FAILURE;
    }
    duovec::run(std::env::args_os())
}
