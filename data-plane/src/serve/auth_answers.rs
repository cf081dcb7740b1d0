//! Answers of servers for forward authentication, kept from one dispatch of a request to the next, and for the requests
//! of its handler.

use crate::handler::proxy::forward_auth::{AuthAnswer, ForwardAuth};
use std::rc::Rc;
use std::sync::Arc;

/// Answers of servers for forward authentication to one request.
#[derive(Clone, Default, Debug)]
pub(super) struct AuthAnswers {
    /// Answers in the order of the questions.
    list: Vec<Rc<AuthAnswer>>,
    /// Number of answers from the request of the client, for a request of its handler.
    inherited: usize,
}

impl AuthAnswers {
    /// Adds the answer to a question.
    pub(super) fn push(&mut self, answer: AuthAnswer) {
        self.list.push(Rc::new(answer));
    }

    /// Returns the answer of a server to a request with the URI.
    pub(super) fn find(&self, auth: &Arc<ForwardAuth>, uri: &[u8]) -> Option<&Rc<AuthAnswer>> {
        self.list.iter().find(|answer| answer.is_for(auth, uri))
    }

    /// Returns true if the client gets cookies of the server with the response to the request of the client.
    pub(super) fn has_earlier_cookies(&self, answer: &AuthAnswer) -> bool {
        let mut earlier = self.list[..self.inherited].iter();
        earlier.any(|earlier| earlier.is_of_server_of(answer) && earlier.has_cookies())
    }

    /// Returns the answers for a request of the handler.
    pub(super) fn inherited(&self) -> AuthAnswers {
        AuthAnswers {
            list: self.list.clone(),
            inherited: self.list.len(),
        }
    }
}
