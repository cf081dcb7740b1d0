//! The program: everything is in the library.

use std::process::ExitCode;

/// Exact fits: musl's own allocator rounds the buffers that a TLS connection keeps up by a seventh,
/// and takes longer.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    anthill::cli::run(std::env::args_os().skip(1))
}
