//! The command `duovec`.

/// Buffers go from the connections' threads to the workers' and back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ! {
    let code = match duovec::allocator::set_up() {
        Ok(()) => duovec::run(std::env::args_os()),
        Err(error) => {
            eprintln!("duovec: no thread can be started: {error}");
            1
        }
    };
    duovec::end(code)
}
