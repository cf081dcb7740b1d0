//! The stage's browser: one for a whole run, and in it a context of its own for each turn, in which
//! the page is loaded cold and then again.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::browser::{Browser, Error, Options, Tab};
use crate::page_load::{Counter, PageLoad};
use crate::result::Round;
use crate::site::Site;

/// The page: of the size that the source document's has, with a style, a script and a font.
pub const PATH: &str = "/journal/2026/04/05.html";

/// A browser that loads the page.
#[derive(Default)]
pub struct PageStage {
    browser: Option<Browser>,
    cached: Option<Result<Round, Error>>,
}

impl PageStage {
    /// Loads the page cold and keeps what loading it again took for [`PageStage::cached`].
    pub fn cold(&mut self, site: &Site, address: SocketAddr) -> Result<Round, Error> {
        let browser = match &mut self.browser {
            Some(browser) => browser,
            none => none.insert(start(site)?),
        };
        // The server's certificate is for this name, whichever loopback address it has.
        let url = format!("https://localhost:{}{PATH}", address.port());
        // The first load of a browser pays for what it does once in its life.
        load(&mut browser.tab()?, &url)?;
        let mut tab = browser.tab()?;
        let cold = load(&mut tab, &url)?;
        let cached = reload(&mut tab, &url)?;
        self.cached = Some(round(&cached, &url));
        round(&cold, &url)
    }

    /// What the second load in the same context took, once.
    pub fn cached(&mut self) -> Option<Result<Round, Error>> {
        self.cached.take()
    }
}

fn start(site: &Site) -> Result<Browser, Error> {
    furnish(&site.root)?;
    let authority = Some(site.certificate.authority_pem.as_str());
    Browser::start(&Options {
        authority,
        hosts: &[],
    })
}

/// Loads a page for the first time in a tab.
pub fn load(tab: &mut Tab, url: &str) -> Result<PageLoad, Error> {
    tab.forget_events();
    let navigation = tab.command("Page.navigate", json!({"url": url}))?;
    if let Some(message) = navigation["errorText"].as_str() {
        return Err(Error::Page {
            url: url.to_owned(),
            message: message.to_owned(),
        });
    }
    count(tab, url)
}

/// Loads it again as a visitor does who comes back: what is cached and fresh isn't asked for.
pub fn reload(tab: &mut Tab, url: &str) -> Result<PageLoad, Error> {
    tab.forget_events();
    tab.command("Page.reload", json!({"ignoreCache": false}))?;
    count(tab, url)
}

fn count(tab: &mut Tab, url: &str) -> Result<PageLoad, Error> {
    let mut counter = Counter::default();
    tab.watch(url, |event| counter.take(event))
}

/// The round of a load; a page that lacks a part isn't whole, and how fast it was tells nothing.
fn round(load: &PageLoad, url: &str) -> Result<Round, Error> {
    if !load.failures.is_empty() {
        return Err(Error::Page {
            url: url.to_owned(),
            message: format!("the page isn't whole: {}", load.failures.join("; ")),
        });
    }
    let extra = [
        ("requests", load.requests as f64),
        ("from_cache", load.from_cache as f64),
        ("transferred_bytes", load.transferred_bytes as f64),
        ("resource_bytes", load.resource_bytes as f64),
        ("dom_content_loaded_ms", load.dom_content_loaded_ms),
        ("load_ms", load.load_ms),
        ("finish_ms", load.finish_ms),
    ];
    Ok(Round {
        driver: "chromium".to_owned(),
        command: url.to_owned(),
        seconds: load.finish_ms.max(load.load_ms) / 1e3,
        requests: load.requests,
        bytes: load.transferred_bytes,
        extra: extra.map(|(key, value)| (key.to_owned(), value)).into(),
        ..Round::default()
    })
}

/// The journal names its style, script, font and pictures from the root, so they must be there too.
/// All are made old: a browser takes a tenth of a file's age as the time that it stays fresh.
fn furnish(root: &Path) -> io::Result<()> {
    let journal = root.join("journal");
    for name in [
        "journal.css",
        "journal.js",
        "fonts/vollkorn.woff2",
        "favicon.svg",
        "favicon.ico",
        "cupboard.svg",
    ] {
        let (from, to) = (journal.join(name), root.join(name));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::copy(from, &to)?;
        age(&to)?;
    }
    age(&root.join(PATH.trim_start_matches('/')))
}

fn age(file: &Path) -> io::Result<()> {
    File::options()
        .write(true)
        .open(file)?
        .set_modified(SystemTime::now() - AGE)
}

/// 200 days.
const AGE: Duration = Duration::from_secs(200 * 86_400);
