//! Python with the packages of the clients, which `tools/setup.sh` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a command for the Python with the packages.
pub fn python() -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let file = target.join("tools/python/bin/python");
    assert!(
        file.is_file(),
        "{} is not there: `make test` makes it, with packages from PyPI",
        file.display()
    );
    Command::new(file)
}

/// Returns the path of a script in tests/support.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/support")
        .join(name)
}
