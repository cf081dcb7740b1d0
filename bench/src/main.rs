//! The `anthill-bench` program, run as `anthill bench`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    anthill_bench::cli::run(std::env::args_os().skip(1))
}
