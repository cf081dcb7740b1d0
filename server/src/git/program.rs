//! Search for git's programs.

use data_plane::handler::call::process::search_path;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;

/// Returns the path of git, or the problem and advice to fix the problem.
pub(crate) fn find_git() -> Result<PathBuf, (String, &'static str)> {
    let path = search_path();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("git"));
    programs.find(|file| file.is_file()).ok_or_else(|| {
        let what = format!("there is no program `git` in {}", path.to_string_lossy());
        (what, "install git: apt-get install git")
    })
}

/// Returns the path of `git-http-backend`, or the problem and advice to fix the problem. Runs git, which
/// takes a moment.
pub(crate) fn find_http_backend() -> Result<PathBuf, (String, &'static str)> {
    let path = search_path();
    let git = find_git()?;
    let output = Command::new(&git)
        .arg("--exec-path")
        .env_clear()
        .env("PATH", &path)
        .output();
    let output = output.map_err(|error| {
        let what = format!("{} can't be run: {error}", git.display());
        (what, "reinstall git: apt-get install --reinstall git")
    })?;
    let folder = output.stdout.trim_ascii().to_vec();
    let folder = PathBuf::from(std::ffi::OsString::from_vec(folder));
    let backend = folder.join("git-http-backend");
    if backend.is_absolute() && backend.is_file() {
        Ok(backend)
    } else {
        let what = format!("git has no http-backend: {}", backend.display());
        Err((
            what,
            "install git, or the package git-daemon where the system has one",
        ))
    }
}
