//! Access of a client to the manager: the login by password or session, and the rights of the login.

use super::channel::{ManagerContext, TokenOwner};
use base::thread_pool::ThreadPoolError;
use data_plane::handler::Request;
use data_plane::world::allow_list::AllowList;
use data_plane::world::users::{LoginLookup, Logins, Users, user_name};
use std::net::IpAddr;
use std::sync::Arc;
use wire::cookie::cookies;
use wire::fields::Fields;
use wire::reject::Reject;

/// Rules of access to the manager.
pub(super) struct AccessRules {
    /// Networks of permitted clients.
    pub(super) allow: Option<AllowList>,
    /// Users with the right to read and to edit.
    pub(super) users: Option<Arc<Users>>,
    /// Users with the right to read.
    pub(super) viewers: Option<Arc<Users>>,
    /// Ledger of logins, shared with the sites.
    pub(super) logins: Arc<Logins>,
}

/// Login of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Visitor {
    /// Client without a login.
    Anonymous,
    /// User with the right to read.
    Viewer(String),
    /// User with the right to read and to edit.
    Editor(String),
    /// Session of `anthill manager login`, with its id.
    Session(Vec<u8>),
}

/// Rights of a client. All clients with equal rights share the part of the page that changes by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Rights {
    /// Reading without the texts and addresses of clients.
    Public,
    /// Reading.
    Read,
    /// Reading and editing.
    Edit,
}

impl Visitor {
    /// Returns the login that may edit, to which tokens are bound.
    pub(super) fn editor(&self) -> Option<TokenOwner<'_>> {
        match self {
            Visitor::Editor(name) => Some(TokenOwner::User(name)),
            Visitor::Session(id) => Some(TokenOwner::Session(id)),
            Visitor::Anonymous | Visitor::Viewer(_) => None,
        }
    }

    /// Returns the rights of the client.
    pub(super) fn rights(&self) -> Rights {
        match self {
            Visitor::Anonymous => Rights::Public,
            Visitor::Viewer(_) => Rights::Read,
            Visitor::Editor(_) | Visitor::Session(_) => Rights::Edit,
        }
    }

    /// Returns true for a client with a login.
    pub(super) fn has_login(&self) -> bool {
        self.rights() != Rights::Public
    }

    /// Returns the name of the login, for the page and the log.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Visitor::Anonymous => None,
            Visitor::Viewer(name) | Visitor::Editor(name) => Some(name),
            Visitor::Session(_) => Some("anthill manager login"),
        }
    }
}

impl AccessRules {
    /// Returns the login of a request. A wrong login is refused even where no login is needed.
    pub(super) async fn visitor(
        &self,
        context: &ManagerContext,
        request: &Request,
    ) -> Result<Visitor, Reject> {
        let fields = Fields(&request.fields);
        let has_users = self.users.is_some() || self.viewers.is_some();
        if let Some(authorization) = fields.first("authorization").filter(|_| has_users) {
            return self.user(context, request, authorization).await;
        }
        let name = cookie_name(request);
        let mut ids = cookies(fields, &name);
        let id = ids.find(|id| context.has_session(id));
        Ok(id.map_or(Visitor::Anonymous, |id| Visitor::Session(id.to_vec())))
    }

    /// Returns the user of an Authorization field. A name in neither file is checked against a file as well, so
    /// that the refusal takes as long and counts as a failed login.
    async fn user(
        &self,
        context: &ManagerContext,
        request: &Request,
        authorization: &[u8],
    ) -> Result<Visitor, Reject> {
        let name = user_name(authorization).ok_or(Reject::LOGIN_WRONG)?;
        let is_in = |file: &&Arc<Users>| file.contains(&name);
        let editor = self.users.as_ref().filter(is_in);
        let viewer = self.viewers.as_ref().filter(is_in);
        let any = self.users.as_ref().or(self.viewers.as_ref());
        let file = editor.or(viewer).or(any).ok_or(Reject::LOGIN_WRONG)?;
        let mut was_asked = false;
        loop {
            let (client, now_ms) = (request.peer.into(), context.now_ms());
            match self.logins.check(file, authorization, client, now_ms) {
                LoginLookup::Known(name) => {
                    return Ok(match editor {
                        Some(_) => Visitor::Editor(name),
                        None => Visitor::Viewer(name),
                    });
                }
                LoginLookup::TooManyFailed => return Err(Reject::LOGINS_FAILED),
                LoginLookup::Unverified(login) if !was_asked => {
                    was_asked = true;
                    let answer = login.answer().await;
                    answer.map_err(|error| match error {
                        ThreadPoolError::Busy => Reject::LOGINS_BUSY,
                        ThreadPoolError::Failed => Reject::PANICKED,
                    })?;
                }
                LoginLookup::Wrong | LoginLookup::Unverified(_) => return Err(Reject::LOGIN_WRONG),
            }
        }
    }

    /// Checks that the client may read. Without a login, only clients on the machine itself may read.
    pub(super) fn may_read(&self, visitor: &Visitor, request: &Request) -> Result<(), Reject> {
        match visitor {
            Visitor::Anonymous if !is_local(request.peer, request.ends.server) => {
                Err(Reject::LOGIN_NEEDED)
            }
            _ => Ok(()),
        }
    }

    /// Returns the login that may edit. Browsers ask for a password only if the manager has users.
    pub(super) fn may_edit<'v>(&self, visitor: &'v Visitor) -> Result<TokenOwner<'v>, Reject> {
        visitor.editor().ok_or(match (visitor, &self.users) {
            (Visitor::Anonymous, Some(_)) => Reject::LOGIN_NEEDED,
            _ => Reject::MANAGER_EDIT_DENIED,
        })
    }
}

/// Returns true if both ends of the connection have loopback addresses.
fn is_local(peer: IpAddr, server: Option<IpAddr>) -> bool {
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    is_loopback(peer) && server.is_some_and(is_loopback)
}

/// Returns the name of the cookie with the session. Cookies of one host are shared by all its ports, so the name
/// has the port.
pub(super) fn cookie_name(request: &Request) -> String {
    format!("anthill_manager_{}", request.ends.server_port.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_client_has_loopback_addresses_at_both_ends() {
        for (peer, server, expected) in [
            ("127.0.0.1", Some("127.0.0.1"), true),
            ("127.0.0.9", Some("127.0.0.1"), true),
            ("::1", Some("::1"), true),
            ("127.0.0.1", Some("::ffff:127.0.0.1"), true),
            ("127.0.0.1", None, false),
            ("127.0.0.1", Some("192.0.2.1"), false),
            ("192.0.2.2", Some("127.0.0.1"), false),
            ("192.0.2.1", Some("192.0.2.1"), false),
        ] {
            let address = |text: &str| text.parse::<IpAddr>().expect("an address");
            let is_local = is_local(address(peer), server.map(address));
            assert_eq!(is_local, expected, "{peer} {server:?}");
        }
    }
}
