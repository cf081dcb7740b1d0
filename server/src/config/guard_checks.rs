//! Doubtful guards: `users`, `allow` and `deny` that guard nothing, that admit every client or none, and files that bypass a guard.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use toml::Spanned;

use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::folder_contents::{VisibleFiles, misplaced_route};
use crate::config::odd_characters::odd_text;
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::site_table::SiteConfig;
use base::atomic_file::read_bounded;
use cli::suggest;
use data_plane::world::allow_list::AllowList;
use release::glob::Glob;

/// Returns the warnings of the guards of all sites.
pub(super) fn doubtful_guards(config: &Config) -> Vec<OperatorError> {
    let mut warnings = Vec::new();
    for site in &config.sites {
        for route in &site.routes {
            let warning = odd_end(config, route)
                .or_else(|| guards_nothing(config, site, route))
                .or_else(|| admits_all(config, route))
                .or_else(|| denies_one_family(config, route))
                .or_else(|| admits_none(config, site, route))
                .or_else(|| bypasses_guard(config, site, route));
            warnings.extend(warning);
        }
        warnings.extend(serves_guarded_site(config, site));
        warnings.extend(sends_source(config, site));
    }
    if let Some(manager) = &config.manager
        && let Some(allow) = manager.allow.as_ref().filter(|allow| covers_all(allow))
    {
        let what = "`allow` of the manager permits every address of the internet";
        let help = "write the networks of the managers, such as allow = [\"192.0.2.0/24\"]";
        warnings.push(config.point(allow[0].span(), what, help));
    }
    warnings.extend(without_users(config));
    warnings.extend(open_files(config));
    if let Some(user) = config
        .server
        .user
        .as_ref()
        .filter(|it| it.get_ref() == "root")
    {
        let what = "`root` is the account with all rights, so the server keeps all rights";
        let help =
            "name an account of its own, such as user = \"anthill\": useradd --system anthill";
        warnings.push(config.point(user.span(), what, help));
    }
    warnings
}

fn is_guard(route: &RouteConfig) -> bool {
    route.users.is_some() || route.allow.is_some() || route.requests.deny.is_some()
}

/// Returns true if `outer` holds for the path `inner`: prefixes are whole components.
pub(super) fn covers(outer: &str, inner: &str) -> bool {
    let rest = inner.strip_prefix(outer.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Warns of a path with a space or an invisible character at its end, which matches no request that was meant.
fn odd_end(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let path = route.path.get_ref();
    let last = path.chars().next_back()?;
    let odd = odd_text(path).filter(|_| !last.is_ascii_graphic() && !last.is_alphanumeric())?;
    let what = format!(
        "the path {path:?} of the route matches no other path: {}",
        odd.what
    );
    let help = format!("write path = \"{}\"", odd.corrected);
    Some(config.point(route.path.span(), what, help))
}

/// Warns of a guard for a path that the site has not: no file, and no handler that could answer.
fn guards_nothing(
    config: &Config,
    site: &SiteConfig,
    route: &RouteConfig,
) -> Option<OperatorError> {
    if !is_guard(route)
        || route.target.is_some()
        || route.scripts.is_some()
        || route.files.try_paths.is_some()
    {
        return None;
    }
    let root = site.root.as_ref().map(Spanned::get_ref)?;
    let path = route.path.get_ref();
    let inside = path.trim_matches('/');
    let is_answered = |other: &RouteConfig| {
        other.scripts.is_some()
            || matches!(other.target, Some(TargetConfig::Rewrite(_)))
            || other.target.is_some()
                && (covers(other.path.get_ref(), path) || covers(path, other.path.get_ref()))
    };
    let is_deployed = config.deployments().iter().any(|it| it.fills(site));
    if inside.is_empty()
        || site.release.is_some()
        || is_deployed
        || !root.is_dir()
        || site.routes.iter().any(is_answered)
        || misplaced_route(config, site, route).is_some()
    {
        return None;
    }
    let exists = |entry: &String| {
        // An entry without the requested path, such as a page for all paths, answers for the guarded path too.
        !entry.contains("$path")
            || root
                .join(entry.replace("$path", path).trim_matches('/'))
                .exists()
    };
    if root.join(inside).exists() || site.try_paths.iter().any(exists) {
        return None;
    }
    let slash = if path.ends_with('/') { "/" } else { "" };
    let shown = root.display();
    let what = format!("the route {path} guards nothing, because {shown} has no {inside}");
    let help = match similar_path(root, inside) {
        Some(meant) => format!("did you mean \"/{meant}{slash}\"?"),
        None => "write the path of an existing file or folder, or remove the route".to_owned(),
    };
    Some(config.point(route.path.span(), what, help))
}

/// Returns the existing path that is most similar to a missing path below a root: with another case or spelling, or with the
/// same last name in another folder.
pub(super) fn similar_path(root: &Path, missing: &str) -> Option<String> {
    let mut found = PathBuf::new();
    let mut parts = missing.split('/');
    let is_similar = parts.all(|part| {
        if root.join(&found).join(part).exists() {
            found.push(part);
            return true;
        }
        let entries = std::fs::read_dir(root.join(&found))
            .into_iter()
            .flatten()
            .flatten();
        let names: Vec<String> = entries
            .take(SIMILAR_ENTRIES_MAX)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.'))
            .collect();
        let same_letters = names.iter().find(|name| name.eq_ignore_ascii_case(part));
        let meant = same_letters.map(String::as_str);
        let meant = meant.or_else(|| suggest(part, names.iter().map(String::as_str)));
        meant.map(|meant| found.push(meant)).is_some()
    });
    if is_similar {
        return found.to_str().map(str::to_owned);
    }
    let last = missing
        .rsplit('/')
        .next()
        .filter(|name| name.contains('.'))?;
    let mut files = VisibleFiles::new(root);
    let file = files.find(|file| file.file_name().is_some_and(|name| name == last))?;
    file.to_str().map(str::to_owned)
}

/// Returns true for a list with the networks of all addresses.
fn covers_all(list: &[Spanned<String>]) -> bool {
    let has = |network: &str| list.iter().any(|it| it.get_ref() == network);
    has("0.0.0.0/0") && has("::/0")
}

fn admits_all(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let allow = route.allow.as_ref().filter(|allow| covers_all(allow))?;
    let what = format!(
        "`allow` of the route {} permits every address",
        route.path.get_ref()
    );
    let help = "write the networks of the permitted clients, or remove `allow`";
    route
        .requests
        .deny
        .is_none()
        .then(|| config.point(allow[0].span(), what, help))
}

/// Warns of `deny` for all addresses of one family: clients of the other family pass.
fn denies_one_family(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let deny = route
        .requests
        .deny
        .as_ref()
        .filter(|_| route.allow.is_none())?;
    let find = |network: &str| deny.iter().find(|it| it.get_ref() == network);
    let (all, family, other) = match (find("0.0.0.0/0"), find("::/0")) {
        (Some(all), None) => (all, "IPv6", "::/0"),
        (None, Some(all)) => (all, "IPv4", "0.0.0.0/0"),
        _ => return None,
    };
    let listeners = config
        .server
        .https
        .iter()
        .chain(&config.server.http)
        .map(|it| it.get_ref());
    let of_sites = config
        .sites
        .iter()
        .flat_map(|site| &site.listen)
        .map(|it| &it.get_ref().address);
    let mut listeners = listeners.chain(of_sites);
    let is_open = listeners.any(|listener| {
        let is_v4 = listener.address.ip().to_canonical().is_ipv4();
        is_v4 != (family == "IPv6") || listener.without_ipv6().is_some()
    });
    is_open.then(|| {
        let what = format!(
            "`{}` has no {family} address, so clients with IPv{} pass",
            all.get_ref(),
            &family[3..]
        );
        let help = format!(
            "add \"{other}\", or write allow = [] in place of `deny` to refuse all clients"
        );
        config.point(all.span(), what, help)
    })
}

/// Warns of a route that no client reaches, because the networks of its `allow` and those of a route above share no address.
fn admits_none(config: &Config, site: &SiteConfig, route: &RouteConfig) -> Option<OperatorError> {
    let path = route.path.get_ref();
    let above = site
        .routes
        .iter()
        .filter(|above| above.span != route.span && covers(above.path.get_ref(), path));
    let mut above = above
        .filter(|it| it.requests.guard_methods.is_none() && it.path.get_ref().len() < path.len());
    let is_closed = |outer: &[Spanned<String>]| {
        let Some(inner) = &route.allow else {
            return outer.is_empty() && route.target.is_some();
        };
        let parsed = |list: &[Spanned<String>]| {
            AllowList::parse(list.iter().map(|it| it.get_ref().as_str())).ok()
        };
        let (Some(one), Some(other)) = (parsed(inner), parsed(outer)) else {
            return false;
        };
        // Two networks share an address if the first address of one is in the other.
        let first = |it: &Spanned<String>| {
            it.get_ref()
                .split('/')
                .next()
                .and_then(|it| it.parse::<IpAddr>().ok())
        };
        let is_apart = |list: &[Spanned<String>], other: &AllowList| {
            list.iter()
                .filter_map(first)
                .all(|address| !other.contains(address))
        };
        !inner.is_empty() && is_apart(inner, &other) && is_apart(outer, &one)
    };
    let outer = above.find(|above| above.allow.as_deref().is_some_and(is_closed))?;
    let what = format!(
        "no client reaches the route {path}: `allow` of the route {} holds for {path} too, because guards add up",
        outer.path.get_ref()
    );
    let help = format!(
        "add the networks of {path} to `allow` of {}, or move the route out of {}",
        outer.path.get_ref(),
        outer.path.get_ref()
    );
    Some(config.point(route.path.span(), what, help))
}

/// Warns of a route that serves a folder which another route guards under another path.
fn bypasses_guard(
    config: &Config,
    site: &SiteConfig,
    route: &RouteConfig,
) -> Option<OperatorError> {
    let Some(TargetConfig::Root(folder)) = &route.target else {
        return None;
    };
    let path = route.path.get_ref();
    let root = site.root.as_ref()?.get_ref().canonicalize().ok()?;
    let folder = folder.get_ref().canonicalize().ok()?;
    let is_guarded = site
        .routes
        .iter()
        .any(|other| is_guard(other) && covers(other.path.get_ref(), path));
    if is_guarded || site.client_ca.is_some() {
        return None;
    }
    let guard = site.routes.iter().find(|other| {
        let inside = other.path.get_ref().trim_matches('/');
        is_guard(other)
            && other.target.is_none()
            && !inside.is_empty()
            && folder.starts_with(root.join(inside))
    })?;
    let guard = guard.path.get_ref();
    let what = format!(
        "the route {path} serves {} without the guard of the route {guard}",
        folder.display()
    );
    let help = format!(
        "give the route {path} the same `users`, `allow` or `deny`, or name a folder outside of {guard}"
    );
    Some(config.point(route.path.span(), what, help))
}

/// Warns of a site that serves the files of another, guarded site without the guard: the root of the guarded site is a
/// folder below the root of this site.
fn serves_guarded_site(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let span = site.root.as_ref()?.span();
    let root = site.root.as_ref()?.get_ref().canonicalize().ok()?;
    let others = config.sites.iter().filter(|other| other.span != site.span);
    others.into_iter().find_map(|other| {
        let inner = other.root.as_ref()?.get_ref().canonicalize().ok()?;
        let inside = inner.strip_prefix(&root).ok()?.to_str()?;
        let guard = other
            .routes
            .iter()
            .find(|it| it.path.get_ref() == "/" && is_guard(it));
        if guard.is_none() && other.client_ca.is_none() || inside.is_empty() {
            return None;
        }
        let path = format!("/{inside}/");
        let is_hidden = inside.split('/').any(|part| part.starts_with('.'));
        let is_handled = site.routes.iter().any(|it| {
            covers(it.path.get_ref(), &path)
                && (is_guard(it) || it.target.is_some() || it.files.hide.is_some())
        });
        let globs = site.hide.iter().filter_map(|glob| Glob::parse(glob).ok());
        let is_hidden = is_hidden
            || globs
                .into_iter()
                .any(|glob| glob.matches(inside.as_bytes()));
        if is_hidden || is_handled || site.client_ca.is_some() || site.release.is_some() {
            return None;
        }
        let what = format!(
            "the site {} serves the files of {} as {path}, without the guard of that site",
            site.name, other.name
        );
        let help = format!(
            "name a root outside of {}, or add a route with path = \"{path}\" and allow = []",
            root.display()
        );
        Some(config.point(span.clone(), what, help))
    })
}

/// Warns of PHP files in a root without a handler, since clients get the source.
fn sends_source(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let root = site.root.as_ref()?;
    let has_handler = site.routes.iter().any(|route| {
        route.scripts.is_some() || route.target.is_some() && route.path.get_ref() == "/"
    });
    if has_handler || site.release.is_some() || config.deployments().iter().any(|it| it.fills(site))
    {
        return None;
    }
    let globs: Vec<Glob> = site
        .hide
        .iter()
        .filter_map(|glob| Glob::parse(glob).ok())
        .collect();
    let file = VisibleFiles::new(root.get_ref()).find(|file| {
        let name = file.as_os_str().as_encoded_bytes();
        let path = format!("/{}", file.display());
        let is_routed = |route: &RouteConfig| {
            (route.target.is_some() || is_guard(route)) && covers(route.path.get_ref(), &path)
        };
        name.ends_with(b".php")
            && !globs.iter().any(|glob| glob.matches(name))
            && !site.routes.iter().any(is_routed)
    })?;
    let what = format!(
        "{} is sent to clients as text with its source, because no route of {} runs PHP",
        root.get_ref().join(&file).display(),
        site.name
    );
    let help = "add [[site.route]] with path = \"/\", fastcgi = \"unix:/run/php/php-fpm.sock\" and files = \".php\", or write \
                hide = [\"*.php\"] in [[site]]";
    Some(config.point(root.span(), what, help))
}

/// Warns of a user file without a user, so that no login is right.
fn without_users(config: &Config) -> Vec<OperatorError> {
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    let files = routes.filter_map(|route| route.users.as_ref());
    let is_empty = |file: &&Spanned<PathBuf>| {
        let text = read_bounded(file.get_ref(), USERS_BYTES_MAX).unwrap_or_else(|_| vec![b':']);
        let is_user = |line: &[u8]| !line.starts_with(b"#") && line.contains(&b':');
        !text.split(|byte| *byte == b'\n').any(is_user)
    };
    files
        .filter(is_empty)
        .map(|file| {
            let shown = file.get_ref().display();
            let what = format!("the user file {shown} has no user, so every login gets 401");
            config.point(
                file.span(),
                what,
                format!("add a user: anthill passwd {shown} NAME"),
            )
        })
        .collect()
}

/// Maximum size of a user file that is searched for a user. A larger file has one.
const USERS_BYTES_MAX: u64 = 64 << 10;

/// Warns of keys that every account of the machine can read, and of user files that every account can write.
fn open_files(config: &Config) -> Vec<OperatorError> {
    let keys = config.sites.iter().filter_map(|site| site.key.as_ref());
    let client_keys = config
        .all_balancers()
        .filter_map(|it| it.client_key.as_ref());
    let keys = keys.chain(client_keys).chain(&config.tls.tickets);
    let users = config
        .sites
        .iter()
        .flat_map(|site| site.routes.iter().flat_map(RouteConfig::user_files));
    let users = users.chain(config.manager_files().map(|(_, file)| file));
    let readable = keys
        .filter(|file| is_open(file.get_ref(), 0o004))
        .map(|file| (file, "read"));
    let writable = users
        .filter(|file| is_open(file.get_ref(), 0o002))
        .map(|file| (file, "write to"));
    readable
        .chain(writable)
        .map(|(file, verb)| {
            let shown = file.get_ref().display();
            let what = format!("every account of this machine can {verb} {shown}");
            config.point(file.span(), what, format!("chmod 640 {shown}"))
        })
        .collect()
}

/// Returns true if every account has the rights in `bits` to a file, and can enter all folders above.
fn is_open(path: &Path, bits: u32) -> bool {
    let Ok(real) = path.canonicalize() else {
        return false;
    };
    let has =
        |path: &Path, bits: u32| std::fs::metadata(path).is_ok_and(|it| it.mode() & bits == bits);
    has(&real, bits) && real.ancestors().skip(1).all(|above| has(above, 0o001))
}

/// Maximum number of entries of a folder in which a similar name is looked for.
const SIMILAR_ENTRIES_MAX: usize = 1_000;
