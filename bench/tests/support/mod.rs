//! Helpers of the browser tests.

use anthill_bench::browser::{Browser, Error, Options};

/// Starts a browser. Without an installed browser, the test names the missing package and passes; in CI,
/// where the message would go unread, the test fails.
pub(crate) fn browser(options: &Options) -> Option<Browser> {
    match Browser::start(options) {
        Err(error @ Error::Missing { .. }) if std::env::var("CI").as_deref() != Ok("true") => {
            eprintln!("not tested: {error}");
            None
        }
        started => Some(started.unwrap_or_else(|error| panic!("{error}"))),
    }
}
