//! Python with the packages of the clients, which `tools/setup.sh` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a command for the Python with the packages.
pub fn python() -> Command {
    let file = environment("python").join("bin/python");
    assert!(
        file.is_file(),
        "{} is not there: `make test` makes it, with packages from PyPI",
        file.display()
    );
    Command::new(file)
}

/// Returns the folder of an environment: `python` with the clients, or `recipes` with the applications of the guide.
pub fn environment(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let tools = target.join("tools");
    std::path::absolute(tools.join(name)).expect("a path")
}

/// Returns the path of a script in tests/support.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/support")
        .join(name)
}
