//! `anthill bench list`: lists suites, contenders and drivers, with versions or reasons for absence. Each
//! command has a file.

use super::command::Arguments;
use super::problem::{Done, Problem, print};
use crate::catalogue::Catalogue;
use crate::driver::DRIVERS;
use crate::suite::SUITES;

pub(super) fn run(arguments: &Arguments) -> Done {
    let catalogue = Catalogue::load(arguments.path("catalogue").as_deref());
    let catalogue = catalogue.map_err(|error| Problem::usage(error.to_string()))?;
    let mut text = "Suites\n".to_owned();
    for suite in SUITES {
        text.push_str(&format!("  {:<12}{}\n", suite.name, suite.about));
    }
    text.push_str("\nServers\n");
    let longest = catalogue
        .entries()
        .iter()
        .map(|entry| entry.name.len())
        .max();
    let width = longest.unwrap_or(0) + 2;
    for entry in catalogue.entries() {
        let found = match entry.find() {
            Ok(found) => format!("{}  {}", found.version, found.program.display()),
            Err(missing) => format!("missing: {}", missing.0),
        };
        text.push_str(&format!("  {:<width$}{found}\n", entry.name));
    }
    text.push_str("\nDrivers\n");
    for driver in DRIVERS {
        let found = match driver.find() {
            Ok(()) => "installed".to_owned(),
            Err(error) => error.to_string(),
        };
        text.push_str(&format!("  {:<12}{found}\n", driver.name()));
    }
    print(&text)
}
