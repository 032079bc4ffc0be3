//! The command `duovec`.

use std::io::{self, Write};

/// Buffers go from the connections' threads to the workers' and back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[expect(unsafe_code, reason = "only a function in C does it")]
fn main() -> ! {
    let code = match duovec::allocator::set_up() {
        Ok(()) => duovec::run(std::env::args_os()),
        Err(error) => {
            eprintln!("duovec: no thread can be started: {error}");
            1
        }
    };
    let _ = io::stdout().flush();
    // A thread that loads a model, or is stuck, may still be in an engine's library, whose exit
    // handlers would take away what it uses.
    // SAFETY: it runs nothing of this process.
    unsafe { libc::_exit(code.into()) }
}
