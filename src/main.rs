//! The command `duovec`.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Buffers go from the connections' threads to the workers' and back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long freed memory may stay with the process.
const KEEP_FREED: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let purge = thread::Builder::new().name("purge".into());
    if let Err(error) = purge.spawn(give_back_freed_memory) {
        eprintln!("duovec: no thread can be started: {error}");
        return ExitCode::FAILURE;
    }
    duovec::run(std::env::args_os())
}

/// The allocator gives freed memory back while it works; an idle process has it work here.
#[expect(unsafe_code, reason = "only a function in C does it")]
fn give_back_freed_memory() {
    loop {
        thread::sleep(KEEP_FREED);
        // SAFETY: any thread may call it at any time; it frees nothing that is in use.
        unsafe {
            libmimalloc_sys::mi_collect(true);
        }
    }
}
