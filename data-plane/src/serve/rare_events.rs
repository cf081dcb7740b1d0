//! Lines of the error log about requests and handshakes that fail by the configuration or the permissions of files, as
//! far as the client alone sees the failure. Each kind has a few lines in a minute.

use crate::handler::HandlerError;
use crate::serve::context::WorkerContext;
use crate::tls::{HandshakeFailure, Tls};
use crate::world::own_listener::OwnListener;
use crate::world::{Host, RouteTarget, World};
use base::log::{RareEvent, RareLines};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::reject::Reject;

/// Logs a failed handshake if no site has the name, or if the client certificate is refused. `offered` are the
/// certificates at the start of the handshake.
#[cold]
pub(super) fn log_handshake(
    context: &WorkerContext,
    peer: IpAddr,
    listener: Option<OwnListener>,
    offered: Option<&Tls>,
    error: &io::Error,
) {
    let failure = error.get_ref().and_then(|it| it.downcast_ref());
    let Some(failure): Option<&HandshakeFailure> = failure else {
        return;
    };
    let name = failure.server_name.as_deref();
    let now_ms = context.clock.millis();
    if let Some(reason) = failure.certificate_refusal() {
        lines(context).log(RareEvent::ClientCertificate, now_ms, &|| {
            let name = name.unwrap_or("the site for clients without a server name");
            format!("TLS refused for {peer}: {name} demands a client certificate: {reason}")
        });
    } else if offered.is_some_and(|tls| !tls.has(name)) {
        log_unknown_name(context, peer, listener, name);
    }
}

/// Logs that a client asked for a server name that no site has; the name of a client over HTTP/3 is not known.
#[cold]
pub(super) fn log_unknown_name(
    context: &WorkerContext,
    peer: IpAddr,
    listener: Option<OwnListener>,
    name: Option<&str>,
) {
    let now_ms = context.clock.millis();
    lines(context).log(RareEvent::UnknownServerName, now_ms, &|| {
        let names = names(&context.world(), listener);
        let name = name.map_or("a name over HTTP/3".to_owned(), |name| format!("`{name}`"));
        format!("TLS refused for {peer}: the client asked for {name}; names are {names}")
    });
}

/// Logs a request for a file that can't be read, or for a link out of the root.
#[cold]
pub(super) fn log_file(context: &WorkerContext, host: &Host, path: &[u8], reject: Reject) {
    let event = match reject {
        Reject::LINK_LEAVES => RareEvent::LinkOut,
        _ => RareEvent::UnreadableFile,
    };
    let now_ms = context.clock.millis();
    lines(context).log(event, now_ms, &|| {
        let site = &host.name;
        let end = path.len().min(PATH_BYTES_MAX);
        let shown = String::from_utf8_lossy(&path[..end]);
        let (target, rest) = match host.policy(path).target(path) {
            Some((RouteTarget::Site(site), rest)) => (Some(site), rest),
            _ => (host.site.as_ref(), path),
        };
        let root = target.map_or(Path::new("/"), |site| site.root());
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        let file = root.join(OsStr::from_bytes(&rest[..rest.len().min(PATH_BYTES_MAX)]));
        let (file, root) = (file.display(), root.display());
        let rule = reject.rule;
        match event {
            RareEvent::LinkOut => format!(
                "{site}: {shown} refused, {file} leads out of {root} by a symbolic link; `symlinks = \"follow\"` allows \
                 such links (rule R{rule})"
            ),
            _ => format!("{site}: {shown} refused, the server's account can't read {file} (rule R{rule})"),
        }
    });
}

/// Logs a failed call with details for the operator. Any client can cause refusals below 500.
#[cold]
pub(super) fn log_failed_call(context: &WorkerContext, error: &HandlerError) {
    if error.reject.status.0 >= 500 {
        error.log();
    } else if error.source.is_some() {
        let now_ms = context.clock.millis();
        lines(context).log(RareEvent::RefusedCall, now_ms, &|| error.to_string());
    }
}

fn lines(context: &WorkerContext) -> &RareLines {
    &context.shared.rare_lines
}

/// Returns the first names of the sites at a listener; None stands for the addresses of `[server]`.
fn names(world: &World, listener: Option<OwnListener>) -> String {
    let hosts = world.hosts.iter().filter(|host| match listener {
        None => host.listeners.is_empty(),
        Some(listener) => host.listeners.contains(&listener),
    });
    let count = hosts.clone().map(|host| host.names.len()).sum::<usize>();
    let names = hosts.flat_map(|host| &host.names);
    let mut text = String::new();
    for name in names.take(NAMES_MAX) {
        let comma = if text.is_empty() { "" } else { ", " };
        text += &format!("{comma}`{name}`");
    }
    let more: Cow<'_, str> = match count.saturating_sub(NAMES_MAX) {
        0 => "".into(),
        more => format!(" and {more} more").into(),
    };
    text + &more
}

/// Most names of sites in a line.
const NAMES_MAX: usize = 8;
/// Most bytes of a path in a line.
const PATH_BYTES_MAX: usize = 256;
