//! Interim responses (RFC 9110 §15.2) of a handler, such as 103 (Early Hints), on their way to the client.

use crate::limits::INTERIM_RESPONSES_WAITING_MAX;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Interim response with its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InterimResponse {
    /// Status, 102 to 199 except 101.
    pub(crate) status: Status,
    /// Field lines.
    pub(crate) fields: ResponseFields,
}

type Queue = Rc<RefCell<VecDeque<InterimResponse>>>;

/// Sending end of the interim responses to one request.
#[derive(Default)]
pub(crate) struct InterimSender(Option<Queue>);

/// Receiving end of the interim responses to one request.
#[derive(Default)]
pub(crate) struct InterimReceiver(Queue);

impl InterimSender {
    /// Sends an interim response to a client that accepts interim responses. The driver takes the response
    /// after the handler returns. Responses above a bound are dropped, because a client reads none of them
    /// while the driver waits for the client. A response with any other status is dropped as well: the
    /// driver sends 100 (Continue) itself, and 101 ends the request.
    pub(crate) fn send(&self, response: InterimResponse) {
        let is_interim = matches!(response.status.0, 102..=199);
        let Some(queue) = self.0.as_ref().filter(|_| is_interim) else {
            return;
        };
        let mut queue = queue.borrow_mut();
        if queue.len() < INTERIM_RESPONSES_WAITING_MAX {
            queue.push_back(response);
        }
    }
}

impl InterimReceiver {
    /// Returns the sending end.
    pub(crate) fn sender(&self) -> InterimSender {
        InterimSender(Some(Rc::clone(&self.0)))
    }

    /// Takes the oldest response.
    pub(crate) fn take(&self) -> Option<InterimResponse> {
        self.0.borrow_mut().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(link: &[u8]) -> InterimResponse {
        let mut fields = ResponseFields::new();
        fields.push(b"Link", link);
        InterimResponse {
            status: Status(103),
            fields,
        }
    }

    #[test]
    fn responses_arrive_in_order_up_to_the_bound() {
        let receiver = InterimReceiver::default();
        let sender = receiver.sender();
        for nth in 0..=INTERIM_RESPONSES_WAITING_MAX {
            sender.send(hints(nth.to_string().as_bytes()));
        }
        assert_eq!(receiver.take(), Some(hints(b"0")));
        let rest = std::iter::from_fn(|| receiver.take()).count();
        assert_eq!(rest, INTERIM_RESPONSES_WAITING_MAX - 1);
        InterimSender::default().send(hints(b"dropped"));
    }

    #[test]
    fn responses_of_the_driver_are_dropped() {
        let receiver = InterimReceiver::default();
        for status in [100, 101, 200] {
            receiver.sender().send(InterimResponse {
                status: Status(status),
                ..hints(b"a")
            });
        }
        assert_eq!(receiver.take(), None);
    }
}
