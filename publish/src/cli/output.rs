//! Output of the commands: text, remarks, and the URLs of a release.

use crate::problem::Problem;
use base::digest::hex;
use release::acknowledgment::SiteAddresses;
use std::collections::HashSet;
use std::io::Write as _;
use std::process::ExitCode;

/// Prints to standard output. A closed pipe is no error, since the reader may stop early.
pub(super) fn print(text: &str) -> Result<ExitCode, Problem> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Problem::failure(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints a remark to standard error.
pub(super) fn warn(text: &str) {
    // No other place is left for the remark.
    let _ = writeln!(std::io::stderr(), "warning: {text}");
}

/// Returns the URLs of a release: the URL of the site, or, for a release with a label, the URLs of its previews by
/// label and by id.
pub(super) fn urls(
    addresses: &SiteAddresses,
    label: Option<&str>,
    release: &[u8; 32],
) -> Vec<String> {
    let Some(label) = label else {
        return addresses.site.iter().cloned().collect();
    };
    let Some(preview) = &addresses.preview else {
        return Vec::new();
    };
    let Some((before, behind)) = preview.split_once('*') else {
        // The address of one label.
        let label = label.to_ascii_lowercase();
        let (_, name) = preview.split_once("://").unwrap_or(("", preview));
        let is_its_own = name.split('.').next() == Some(&label);
        return is_its_own.then(|| preview.clone()).into_iter().collect();
    };
    let preview = |name: &str| format!("{before}{name}{behind}");
    // `*` stands for one name of a host, so a label with a dot has no URL.
    let label = Some(label).filter(|label| !label.contains('.'));
    let by_label = label.map(|label| preview(&label.to_ascii_lowercase()));
    let by_id = preview(&hex(release)[..PREVIEW_DIGITS]);
    by_label.into_iter().chain([by_id]).collect()
}

/// Returns a line for a label without an address of its own, if the server shows another label alone.
pub(super) fn other_label(addresses: &SiteAddresses, label: Option<&str>) -> String {
    match (&addresses.preview, label) {
        (Some(preview), Some(label)) if !preview.contains('*') => {
            let (_, name) = preview.split_once("://").unwrap_or(("", preview));
            let shown = name.split('.').next().unwrap_or_default();
            if shown.eq_ignore_ascii_case(label) {
                String::new()
            } else {
                format!("  the server shows the label {shown} alone, at {preview}\n")
            }
        }
        _ => String::new(),
    }
}

/// Digits of a release id in the name of a preview: the least number that the server accepts.
pub(super) const PREVIEW_DIGITS: usize = 16;

/// Returns a line for each URL, each once.
pub(super) fn open_lines(mut urls: Vec<String>) -> String {
    let mut seen = HashSet::new();
    urls.retain(|url| seen.insert(url.clone()));
    let lines = urls.iter().map(|url| format!("  open {url}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_has_an_address_by_its_label_and_by_its_id() {
        let of = |preview: &str, label: &str| {
            let addresses = SiteAddresses {
                site: None,
                preview: Some(preview.to_owned()),
            };
            urls(&addresses, Some(label), &[0xab; 32])
        };
        assert_eq!(
            of("https://*.preview.test:8443/", "Next"),
            [
                "https://next.preview.test:8443/",
                "https://abababababababab.preview.test:8443/"
            ]
        );
        assert_eq!(
            of("https://*.preview.test/", "v1.2"),
            ["https://abababababababab.preview.test/"]
        );
        assert_eq!(of("https://next.test/", "Next"), ["https://next.test/"]);
        assert_eq!(of("https://next.test/", "other"), [""; 0]);
        let remark = |preview: &str, label: &str| {
            let addresses = SiteAddresses {
                site: None,
                preview: Some(preview.to_owned()),
            };
            other_label(&addresses, Some(label))
        };
        assert_eq!(
            remark("https://next.test/", "other"),
            "  the server shows the label next alone, at https://next.test/\n"
        );
        assert_eq!(remark("https://next.test/", "Next"), "");
        assert_eq!(remark("https://*.test/", "other"), "");
    }
}
