//! What the tests that need a browser share.

use anthill_bench::browser::{Browser, Error, Options};

/// A browser. Where none is installed the test says which package has it and ends well, but in CI,
/// where nobody would read that, it fails.
pub fn browser(options: &Options) -> Option<Browser> {
    match Browser::start(options) {
        Err(error @ Error::Missing { .. }) if std::env::var("CI").as_deref() != Ok("true") => {
            eprintln!("not tested: {error}");
            None
        }
        started => Some(started.unwrap_or_else(|error| panic!("{error}"))),
    }
}
