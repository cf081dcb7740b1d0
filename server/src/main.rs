//! The anthill program, a thin wrapper around the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: base::sys::Heap = base::sys::Heap;

fn main() -> ExitCode {
    anthill::cli::run(std::env::args_os().skip(1))
}
