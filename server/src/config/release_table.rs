//! Keys of `[[site]]` for releases: `release`, `publishers`, `site_id`, `preview` and `preview_users`.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::declare_table;
use crate::config::error::OperatorError;
use crate::config::foreign_words;
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::values::{site_name, wrong};
use base::digest::from_hex;
use release::limits::RELEASE_DIGITS_MIN;
use release::release_pointer::{is_label, is_site_id};
use release::store::ReleaseSupport;

declare_table! {
    /// Keys of `[[site]]` about releases.
    pub(super) struct ReleaseKeys: "[[site]]" {
        /// Name of the site in the store of [releases](releases.md), in place of `root`. A `root` beside the key is served
        /// [until the first release](releases.md#from-a-folder-to-releases).
        release: ReleaseName = optional("none"), example "\"www\"";
        /// Ed25519 public keys, each 64 hexadecimal digits. With keys, only
        /// [signed releases](releases.md#publishers) are served.
        publishers: Vec<PublisherKey> = optional("none"),
            example "[\"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\"]";
        /// Identity of the site in the signatures, as `anthill publish --new-key` prints it. With the identity, only
        /// [signatures for this site](releases.md#publishers) count. Needs `publishers`.
        site_id: SiteId = optional("none"), example "\"9f0c5ad24e8b41d7a3c6b1e2f4058d97\"";
        /// Name of the [previews](releases.md#previews): `"*.preview.example.org"` for all releases, or
        /// `"next.example.org"` for the label `next` alone.
        preview: PreviewName = optional("none"), example "\"*.preview.example.org\"";
        /// [User file](routes.md) for previews by their labels.
        preview_users: PathBuf = optional("none"), example "\"preview-users\"";
    }
}

/// Release of a site (`release`, `publishers`, `site_id`, `preview` and `preview_users`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseConfig {
    /// Name of the site in the store.
    pub name: Spanned<String>,
    /// Ed25519 public keys of the publishers. Empty = an unsigned pointer is accepted.
    pub publishers: Vec<[u8; 32]>,
    /// Identity of the site in the signatures; `None` = a signature for any site of the name counts.
    pub site_id: Option<String>,
    /// Name of the previews, such as `*.preview.example.org` or `next.example.org`; `None` = no previews.
    pub preview: Option<Spanned<String>>,
    /// File of the users that may see previews by their labels.
    pub preview_users: Option<Spanned<PathBuf>>,
    /// Support of releases in this build.
    pub support: ReleaseSupport,
}

impl ReleaseKeys {
    /// Returns the release; `None` for a folder. A key without `release` is refused if the table is whole.
    pub(super) fn settings(
        self,
        source: &SourceText<'_>,
        is_whole: bool,
    ) -> Result<Option<ReleaseConfig>, OperatorError> {
        let Some(name) = self.release else {
            let keys = [
                ("publishers", self.publishers.map(|it| it.span())),
                ("site_id", self.site_id.map(|it| it.span())),
                ("preview", self.preview.map(|it| it.span())),
                ("preview_users", self.preview_users.map(|it| it.span())),
            ];
            let keys = keys.into_iter().filter(|_| is_whole);
            let errors = keys.filter_map(|(key, span)| {
                let what = format!("`{key}` is for a site with `release`");
                let help = "write the name of the site in the store, such as release = \"www\"";
                Some(source.error(span?, what, help))
            });
            return OperatorError::all(errors.collect()).map_or(Ok(None), Err);
        };
        let Some(support) = ReleaseSupport::find() else {
            let help = "write `root` in place of `release`, or install a build with releases";
            return Err(source.error(name.span(), "this build has no releases", help));
        };
        let publishers = self.publishers.map_or_else(Vec::new, Spanned::into_inner);
        if let Some(id) = &self.site_id
            && publishers.is_empty()
        {
            let what = "`site_id` is a part of signatures, and the site has no `publishers`";
            let help = "write both lines that `anthill publish --new-key publisher.pem` prints, or remove `site_id`";
            return Err(source.error(id.span(), what, help));
        }
        let preview = self.preview;
        Ok(Some(ReleaseConfig {
            name: Spanned::new(name.span(), name.into_inner().0),
            publishers: publishers.into_iter().map(|key| key.0).collect(),
            site_id: self.site_id.map(|id| id.into_inner().0),
            preview: preview.map(|it| Spanned::new(it.span(), it.into_inner().0)),
            preview_users: self.preview_users,
            support,
        }))
    }
}

/// Name of a site in the store of releases.
#[derive(Clone, Debug)]
pub(super) struct ReleaseName(String);

impl FromToml for ReleaseName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let name = item.parse("text in quotes", "\"www\"", |text| if is_label(text) {
Ok(text.to_owned())
} else {
wrong(
                format!("`{text}` is no name of a site in a store"),
                "write at most 63 letters, digits, dots, hyphens and underscores, and begin with a letter or digit",
            )
});
        name.map(ReleaseName)
    }
}

/// Identity of a site in signatures.
#[derive(Clone, Debug)]
pub(super) struct SiteId(String);

impl FromToml for SiteId {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = "\"9f0c5ad24e8b41d7a3c6b1e2f4058d97\"";
        let id = item.parse("text in quotes", example, |text| if is_site_id(text) {
Ok(text.to_owned())
} else {
wrong(
                "`site_id` has a wrong form".to_owned(),
                "write 16 to 63 letters, digits, hyphens and underscores; `anthill publish --new-key publisher.pem` prints a \
                 random text",
            )
});
        id.map(SiteId)
    }
}

/// Name of previews: a wildcard name, or the name of one label.
#[derive(Clone, Debug)]
pub(super) struct PreviewName(String);

impl FromToml for PreviewName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = "\"*.preview.example.org\"";
        let name = item.parse("a host name in quotes", example, |text| {
            let name = site_name(text)?;
            let Some((label, _)) = name.split_once('.').filter(|_| !name.starts_with('[')) else {
                return wrong(
                    format!("`{name}` has no label of a release"),
                    "write the name of one label, such as \"next.example.org\", or \"*.preview.example.org\" for all",
                );
            };
            let is_id = label.len() >= RELEASE_DIGITS_MIN
                && label.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_id {
                return wrong(
                    format!("the label `{label}` of `{name}` could be the start of a release id"),
                    "take a label with another character, such as \"next.example.org\"",
                );
            }
            Ok(name)
        });
        name.map(PreviewName)
    }
}

/// Ed25519 public key.
#[derive(Clone, Debug)]
pub(super) struct PublisherKey([u8; 32]);

impl FromToml for PublisherKey {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = foreign_words::example("publishers").unwrap_or_default();
        let key = item.parse("a key in quotes", example, |text| {
            if text.starts_with("ssh-") {
                return wrong(
                    "a key of `publishers` is a key of SSH",
                    "`anthill publish --new-key publisher.pem` makes a key, and prints the line for `publishers`",
                );
            }
            from_hex(text.as_bytes()).map_or_else(
                || {
                    wrong(
                        "a key of `publishers` is no Ed25519 public key",
                        "write the 64 lower-case hexadecimal digits of the key",
                    )
                },
                Ok,
            )
        });
        key.map(PublisherKey)
    }
}

/// Refuses keys of a site without a folder, and routes that run files. A site has a folder beside its release if `root` is
/// served until the first release.
pub(super) fn refuse_keys_of_folders(
    source: &SourceText<'_>,
    release: &ReleaseConfig,
    others: [(&str, Option<Range<usize>>); 2],
    has_root: bool,
    routes: &[RouteConfig],
) -> Result<(), OperatorError> {
    let mut errors = Vec::new();
    for (key, span) in others {
        if let Some(span) = span.filter(|_| !has_root) {
            let what = format!("`{key}` is for a site with a folder, and the site has `release`");
            let help = format!("remove `{key}`, or remove `release` to serve a folder");
            errors.push(source.error(span, what, help));
        }
    }
    let hiding = routes.iter().filter_map(|route| {
        let has_folder = matches!(
            route.target,
            Some(TargetConfig::Root(_) | TargetConfig::Cgi(_))
        );
        route.hide_span().filter(|_| !has_folder && !has_root)
    });
    errors.extend(hiding.map(|span| {
        let what = "`hide` is for files of a folder, and the site has `release`";
        let help = "remove `hide`: a release has the files that the publisher chose";
        source.error(span, what, help)
    }));
    errors.extend(
        routes
            .iter()
            .filter(|route| route.scripts.is_some())
            .map(|route| {
            let what = format!(
                "the route {} runs files of the site, and the contents of release = \"{}\" are in no folder in which \
                 programs could find them",
                route.path.get_ref(),
                release.name.get_ref()
            );
            let help =
                "write `root` instead of `release`, or give `cgi` a folder outside of the release";
            source.error(route.span.clone(), what, help)
        }),
    );
    OperatorError::all(errors).map_or(Ok(()), Err)
}
