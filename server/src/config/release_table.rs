//! Keys of `[[site]]` for releases: `release`, `publishers`, `preview` and `preview_users`.

use crate::base::digest::from_hex;
use crate::config::toml_reader::{SourceText, TableReader};
use crate::config::value_types::SiteName;
use crate::config::{OperatorError, ReleaseConfig, RouteConfig, Spanned};
use crate::wire::release_pointer::is_label;
use std::ops::Range;
use std::path::PathBuf;

/// Takes `release`, `publishers`, `preview` and `preview_users`.
pub(super) fn release(
    table: &mut TableReader<'_, '_>,
) -> Result<Option<ReleaseConfig>, OperatorError> {
    let source = table.source();
    let publishers = table.take::<Vec<Spanned<String>>>("publishers")?;
    let preview = table.take::<Spanned<SiteName>>("preview")?;
    let preview_users = table.take::<Spanned<PathBuf>>("preview_users")?;
    let Some(name) = table.take::<Spanned<String>>("release")? else {
        let first = publishers.iter().flatten().next().map(Spanned::span);
        let preview = preview.map(|it| it.span());
        let preview_users = preview_users.map(|it| it.span());
        let keys = [
            ("publishers", first),
            ("preview", preview),
            ("preview_users", preview_users),
        ];
        for (key, span) in keys {
            if let Some(span) = span {
                let what = format!("`{key}` is for a site with `release`");
                let help = "write the name of the site in the store, such as release = \"www\"";
                return Err(source.error(span, what, help));
            }
        }
        return Ok(None);
    };
    if !is_label(name.get_ref()) {
        let what = format!("`{}` is no name of a site in a store", name.get_ref());
        let help = "write at most 63 letters, digits, dots, hyphens and underscores, and begin with a letter or digit";
        return Err(source.error(name.span(), what, help));
    }
    let publishers = publishers.unwrap_or_default().into_iter();
    let publishers = publishers.map(|key| public_key(source, &key));
    Ok(Some(ReleaseConfig {
        name,
        publishers: publishers.collect::<Result<_, _>>()?,
        preview: preview.map(|name| preview_name(source, name)).transpose()?,
        preview_users,
    }))
}

/// Returns the wildcard name of the previews.
fn preview_name(
    source: &SourceText<'_>,
    name: Spanned<SiteName>,
) -> Result<Spanned<String>, OperatorError> {
    let span = name.span();
    let name = name.into_inner().0;
    match name.starts_with("*.") {
        true => Ok(Spanned::new(span, name)),
        false => {
            let what = format!("`{name}` names a single host");
            let help = format!("write preview = \"*.preview.{name}\", a name for each release");
            Err(source.error(span, what, help))
        }
    }
}

fn public_key(source: &SourceText<'_>, key: &Spanned<String>) -> Result<[u8; 32], OperatorError> {
    from_hex(key.get_ref().as_bytes()).ok_or_else(|| {
        source.error(
            key.span(),
            "a key of `publishers` is no Ed25519 public key",
            "write the 64 lower-case hexadecimal digits of the key",
        )
    })
}

/// Refuses keys of a site that need a folder.
pub(super) fn refuse_keys_of_folders(
    source: &SourceText<'_>,
    release: &ReleaseConfig,
    others: [(&str, Option<Range<usize>>); 2],
    routes: &[RouteConfig],
) -> Result<(), OperatorError> {
    for (key, span) in others {
        if let Some(span) = span {
            let what = format!("`{key}` is for a site with a folder, and the site has `release`");
            let help = format!("remove `{key}`, or remove `release` to serve a folder");
            return Err(source.error(span, what, help));
        }
    }
    match routes.iter().find(|route| route.scripts.is_some()) {
        None => Ok(()),
        Some(route) => {
            let what = format!(
                "the route {} runs files of the site, and the contents of release = \"{}\" are in no folder in which \
                 programs could find them",
                route.path.get_ref(),
                release.name.get_ref()
            );
            let help =
                "write `root` instead of `release`, or give `cgi` a folder outside of the release";
            Err(source.error(route.span.clone(), what, help))
        }
    }
}
