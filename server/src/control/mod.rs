//! The control plane: what `anthill serve` and `anthill check` do.

use crate::config::{self, Chosen, OperatorError, Overrides};

/// What the command line asked to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The configuration file, or the folder without one.
    pub chosen: Chosen,
    /// What options change in it, also after a reload.
    pub overrides: Overrides,
}

/// What `anthill check` found, when nothing is wrong.
#[derive(Clone, Debug)]
pub struct Checked {
    /// One line for standard output.
    pub summary: String,
    /// What works but probably isn't meant.
    pub warnings: Vec<String>,
}

/// Serves until told to stop; returns after everything was drained.
pub fn serve(options: &ServeOptions) -> Result<(), OperatorError> {
    let config = options.chosen.read(&options.overrides)?;
    config::check(&config)?;
    Err(OperatorError::failure("this build has no server in it"))
}

/// Tests a configuration without serving it.
pub fn check(options: &ServeOptions) -> Result<Checked, OperatorError> {
    let config = options.chosen.read(&options.overrides)?;
    let warnings = config::check(&config)?;
    let names: Vec<&str> = config
        .sites
        .iter()
        .map(|site| site.names[0].get_ref().as_str())
        .collect();
    let sites = if names.len() == 1 { "site" } else { "sites" };
    let summary = format!(
        "{} is right: {} {sites} ({})",
        config.shown,
        names.len(),
        names.join(", ")
    );
    Ok(Checked { summary, warnings })
}
