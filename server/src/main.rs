//! The program: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    anthill::cli::run(std::env::args_os().skip(1))
}
