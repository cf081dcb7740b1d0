//! The program: everything is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: anthill::base::sys::Heap = anthill::base::sys::Heap;

fn main() -> ExitCode {
    anthill::cli::run(std::env::args_os().skip(1))
}
