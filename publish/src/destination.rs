//! Destination of a publication: a store in a folder of this machine, a site of another host, or a packed release.

use crate::problem::Problem;
use release::release_pointer::is_label;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Destination of a publication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// Store in a folder, and the name of the site if given.
    Folder(PathBuf, Option<String>),
    /// Host with a server, and the name of the site if given.
    Host(String, Option<String>),
    /// File with a packed release.
    Packed(PathBuf),
}

impl Destination {
    /// Reads `PATH[:SITE]`, `HOST[:SITE]` or `FILE.release`. A path has a slash, or is the name of a present folder.
    pub(crate) fn parse(text: &OsStr) -> Result<Destination, Problem> {
        let path = PathBuf::from(text);
        if path.is_dir() {
            return Ok(Destination::Folder(path, None));
        }
        if is_packed(&path) {
            return Ok(Destination::Packed(path));
        }
        let Some(text) = text.to_str() else {
            // A path with a site is UTF-8, since the name of the site is ASCII.
            return Ok(Destination::Folder(path, None));
        };
        let (place, site) = match text.rsplit_once(':') {
            Some((place, site)) if !site.contains('/') => (place, Some(site)),
            _ => (text, None),
        };
        if let Some(site) = site
            && !is_label(site)
        {
            let what = format!("`{site}` is no name of a site");
            return Err(Problem::usage(what).help(
                "a name has 1 to 63 letters, digits, dots, hyphens and underscores, with a letter or a digit first",
            ));
        }
        let site = site.map(str::to_owned);
        if place.is_empty() {
            return Err(
                Problem::usage("the destination is empty").help("name a store: ./store:www")
            );
        }
        let path = PathBuf::from(place);
        Ok(if place.contains('/') || path.is_dir() {
            Destination::Folder(path, site)
        } else {
            Destination::Host(place.to_owned(), site)
        })
    }

    /// Returns the folder of a store and the name of the site if given.
    pub(crate) fn folder(text: &OsStr) -> Result<(PathBuf, Option<String>), Problem> {
        match Destination::parse(text)? {
            Destination::Folder(path, site) => Ok((path, site)),
            Destination::Packed(path) => {
                let what = format!(
                    "`{}` is the name of a packed release, and this action needs the folder of a store",
                    path.display()
                );
                Err(Problem::usage(what).help("name the folder of a store"))
            }
            Destination::Host(host, site) => {
                let site = site.map_or_else(String::new, |site| format!(":{site}"));
                let what =
                    format!("`{host}` is a host, and this action needs the folder of a store");
                Err(Problem::usage(what).help(format!(
                    "name the folder of a store with a slash: ./{host}{site}"
                )))
            }
        }
    }
}

/// Returns true for the name of a packed release: the name ends in `.release`, has no colon, and is no folder. A host or
/// store with such a name is named with its site.
pub(crate) fn is_packed(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let stem = name.strip_suffix(b".release").unwrap_or_default();
    !stem.is_empty() && !stem.contains(&b':') && !path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_hosts_are_told_apart() {
        let parse = |text: &str| Destination::parse(OsStr::new(text)).expect(text);
        let folder = |path: &str, site: Option<&str>| {
            Destination::Folder(path.into(), site.map(str::to_owned))
        };
        let host = |host: &str, site: Option<&str>| {
            Destination::Host(host.into(), site.map(str::to_owned))
        };
        assert_eq!(parse("./store"), folder("./store", None));
        assert_eq!(parse("/srv/store:www"), folder("/srv/store", Some("www")));
        assert_eq!(parse("a:b/store"), folder("a:b/store", None));
        assert_eq!(parse("src"), folder("src", None));
        assert_eq!(parse("src:www"), folder("src", Some("www")));
        assert_eq!(parse("zero"), host("zero", None));
        assert_eq!(parse("pi@zero:www"), host("pi@zero", Some("www")));
        for packed in ["www.release", "./usb/a.b.release", "/mnt/www.release"] {
            assert_eq!(parse(packed), Destination::Packed(packed.into()));
        }
        assert_eq!(parse("zero.release:www"), host("zero.release", Some("www")));
        assert_eq!(parse("zero:www.release"), host("zero", Some("www.release")));
        assert_eq!(parse("./a.release:www"), folder("./a.release", Some("www")));
        assert_eq!(parse("./.release"), folder("./.release", None));
        for wrong in ["zero:", ":www", "./store:.x", "zero:a b"] {
            assert!(Destination::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
        assert!(Destination::folder(OsStr::new("pi@zero")).is_err());
    }
}
