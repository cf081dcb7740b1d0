//! Check of the resources that a request of WebDAV names beside its target, in Destination and If.

use crate::serve::access::{AccessDenied, AccessGate};
use crate::serve::dispatch_context::DispatchContext;
use crate::serve::forwarding::stated_client;
use crate::world::{Host, PathPolicy};
use std::borrow::Cow;
use wire::effective_host;
use wire::limits::RESOURCE_TAGS_MAX;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::request_target::{self, EncodedSlash, encode_raw_text};
use wire::webdav::{own_reference, resource_tags};

/// Check of the named resources of one request.
pub(super) struct NamedResources<'c, 'w, 'h> {
    pub(super) gate: &'c mut AccessGate<'w, 'h>,
    pub(super) host: &'w Host,
    /// Policy of the requested path.
    pub(super) policy: &'w PathPolicy,
    pub(super) context: &'h DispatchContext,
    pub(super) head: &'h RequestHead<'h>,
}

impl NamedResources<'_, '_, '_> {
    /// Checks the resources that a request of WebDAV names beside its target: every rule by path holds for them as for a
    /// target. A method of RFC 9110 has no Destination, and the field then has no meaning.
    #[inline(never)]
    pub(super) fn pass_all(&mut self) -> Result<(), AccessDenied> {
        let known = &self.head.known_fields;
        let (destination, tags) = (known.destination, known.webdav_if);
        if let Some(url) = destination.filter(|_| self.head.method.is_extension()) {
            let Some(reference) = self.own_part(url) else {
                let is_empty = url.is_empty();
                return Err(AccessDenied::Refuse(if is_empty {
                    Reject::DESTINATION_MALFORMED
                } else {
                    Reject::DESTINATION_ELSEWHERE
                }));
            };
            let path = self.pass(reference)?;
            // A member knows the paths of its own route alone.
            let route = self.host.policy(&path).route().map(std::ptr::from_ref);
            if route != self.policy.route().map(std::ptr::from_ref) {
                return Err(AccessDenied::Refuse(Reject::DESTINATION_ELSEWHERE));
            }
        }
        let Some(value) = tags else {
            return Ok(());
        };
        let mut count = 0;
        for tag in resource_tags(value) {
            count += 1;
            if let Some(reference) = self.own_part(&value[tag]) {
                self.pass(reference)?;
            }
        }
        if value.is_empty() || count > RESOURCE_TAGS_MAX {
            Err(AccessDenied::Refuse(Reject::DESTINATION_MALFORMED))
        } else {
            Ok(())
        }
    }

    /// Returns the path and the query of a URL with the host of the request; None for a URL of another host.
    fn own_part<'u>(&self, url: &'u [u8]) -> Option<&'u [u8]> {
        let head = self.head;
        let proxy = self.context.forwarded_by;
        let stated = proxy.and_then(|proxy| {
            let client = stated_client(&self.gate.world.trust, proxy, head.fields);
            client.ok()?.host
        });
        let hosts = [effective_host(head), stated.unwrap_or_default()];
        own_reference(url, &hosts)
    }

    /// Checks a path and its query by the guards and the other rules of paths. Returns the decoded path.
    fn pass(&mut self, reference: &[u8]) -> Result<Vec<u8>, AccessDenied> {
        let mut encoded = Vec::with_capacity(reference.len());
        encode_raw_text(reference, &mut encoded);
        let slash = EncodedSlash::of(&self.gate.world.limits.head);
        let target = request_target::parse_target_with(Method::Get, &encoded, slash);
        let target = target.map_err(|reject| {
            AccessDenied::Refuse(match reject {
                // Rules of a malformed text, as opposed to a refused path, speak of the request's own target.
                Reject::TARGET_MALFORMED | Reject::TARGET_PERCENT => Reject::DESTINATION_MALFORMED,
                reject => Reject {
                    close: false,
                    ..reject
                },
            })
        })?;
        let path = target.path;
        let policy = self.host.policy(&path);
        let readings = match &path {
            Cow::Borrowed(_) => None,
            Cow::Owned(path) => {
                let readings = self.host.readings(policy, target.raw_path, path);
                readings.map_err(AccessDenied::Refuse)?
            }
        };
        self.gate.is_named = true;
        self.gate.pass(&path)?;
        if let Some(readings) = &readings {
            readings.iter().try_for_each(|path| self.gate.pass(path))?;
            self.gate.pass_encoded_slashes(policy, target.raw_path)?;
        }
        self.gate.is_named = false;
        Ok(path.into_owned())
    }
}
