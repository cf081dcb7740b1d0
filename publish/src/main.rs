//! The `anthill-publish` program, run as `anthill publish`, `anthill releases` and `anthill rollback`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    anthill_publish::cli::run(std::env::args_os().skip(1))
}
