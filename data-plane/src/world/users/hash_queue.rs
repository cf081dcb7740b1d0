//! Bounded queue of logins waiting for a hashing thread. No client can fill the queue, and no client waits
//! for all logins of another client. The module is pure.

use crate::base::fair_share::{ClientNetwork, may_take};

/// Bounded queue of logins in which clients take turns.
pub(super) struct HashQueue<T> {
    max: usize,
    queued: Vec<QueuedLogin<T>>,
    /// Turn of the last login taken, for untrusted clients and for trusted clients.
    turns: [u64; 2],
    numbers: u64,
}

struct QueuedLogin<T> {
    client: ClientNetwork,
    is_trusted: bool,
    /// Turn of the login. Logins of an earlier turn are taken first. A client has at most a single login in
    /// each turn.
    turn: u64,
    number: u64,
    job: T,
}

/// Result of queueing a login.
pub(super) enum PushOutcome<T> {
    /// The login waits under the given number.
    In(u64),
    /// The login waits in place of the given login.
    Displacing(T),
    /// The queue has no room for the login.
    Full(T),
}

impl<T> HashQueue<T> {
    /// Makes a queue for at most `max` logins.
    pub(super) fn new(max: usize) -> HashQueue<T> {
        HashQueue {
            max,
            queued: Vec::new(),
            turns: [0; 2],
            numbers: 0,
        }
    }

    /// Queues a login of `client`. Logins of trusted clients go before all logins of untrusted clients,
    /// and displace an untrusted login where the queue is full.
    pub(super) fn push(
        &mut self,
        client: ClientNetwork,
        is_trusted: bool,
        job: T,
    ) -> PushOutcome<T> {
        let own = self.queued.iter().filter(|it| it.client == client);
        let (count, last) = own.fold((0, 0), |(count, last), it| (count + 1, it.turn.max(last)));
        let mut displaced = None;
        if is_trusted && self.queued.len() >= self.max {
            let strangers = self.queued.iter().filter(|it| !it.is_trusted);
            displaced = strangers.max_by_key(|it| (it.turn, it.number));
        }
        let all = self.queued.len() - usize::from(displaced.is_some());
        if !may_take(count, all, self.max) {
            return PushOutcome::Full(job);
        }
        let displaced = displaced.map(|it| it.number);
        let displaced = displaced.and_then(|number| self.remove(number));
        self.numbers += 1;
        let number = self.numbers;
        self.queued.push(QueuedLogin {
            client,
            is_trusted,
            turn: last.max(self.turns[usize::from(is_trusted)]) + 1,
            number,
            job,
        });
        match displaced {
            Some(displaced) => PushOutcome::Displacing(displaced),
            None => PushOutcome::In(number),
        }
    }

    /// Takes the next login out of the queue.
    pub(super) fn pop(&mut self) -> Option<T> {
        let order = |it: &&QueuedLogin<T>| (!it.is_trusted, it.turn, it.number);
        let next = self.queued.iter().min_by_key(order)?;
        let (number, turn) = (next.number, next.turn);
        self.turns[usize::from(next.is_trusted)] = turn;
        self.remove(number)
    }

    /// Takes the login with the given number out, if the login still waits.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.queued.iter().position(|it| it.number == number)?;
        Some(self.queued.remove(at).job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(nth: u8) -> ClientNetwork {
        IpAddr::from([192, 0, 2, nth]).into()
    }

    fn push(queue: &mut HashQueue<u32>, nth: u8, is_trusted: bool, job: u32) {
        let pushed = queue.push(client(nth), is_trusted, job);
        assert!(matches!(pushed, PushOutcome::In(_)), "{job}");
    }

    fn all(queue: &mut HashQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn clients_are_served_in_turn() {
        let mut queue = HashQueue::new(64);
        for job in 10..14 {
            push(&mut queue, 1, false, job);
        }
        push(&mut queue, 2, false, 20);
        push(&mut queue, 2, false, 21);
        assert_eq!(queue.pop(), Some(10));
        // A client that comes later has the first turn after the current turn.
        push(&mut queue, 3, false, 30);
        assert_eq!(all(&mut queue), [20, 11, 21, 30, 12, 13]);
    }

    #[test]
    fn clients_that_arrive_later_do_not_starve_a_waiting_client() {
        let mut queue = HashQueue::new(64);
        for job in 0..3 {
            push(&mut queue, 1, false, job);
        }
        let mut taken = Vec::new();
        for nth in 2..10 {
            push(&mut queue, nth, false, u32::from(nth) * 10);
            taken.extend(queue.pop());
        }
        assert!(taken.contains(&2), "{taken:?}");
    }

    #[test]
    fn trusted_clients_go_first() {
        let mut queue = HashQueue::new(64);
        push(&mut queue, 1, false, 10);
        push(&mut queue, 2, true, 20);
        push(&mut queue, 2, true, 21);
        push(&mut queue, 3, true, 30);
        assert_eq!(all(&mut queue), [20, 30, 21, 10]);
    }

    #[test]
    fn no_client_fills_the_queue_and_trusted_clients_displace_untrusted_clients() {
        let mut queue = HashQueue::new(16);
        for job in 0..12 {
            push(&mut queue, 1, false, job);
        }
        assert!(matches!(
            queue.push(client(1), false, 12),
            PushOutcome::Full(12)
        ));
        for nth in 2..6 {
            push(&mut queue, nth, false, 100 + u32::from(nth));
        }
        assert!(matches!(
            queue.push(client(9), false, 0),
            PushOutcome::Full(0)
        ));
        let displaced = queue.push(client(9), true, 90);
        assert!(matches!(displaced, PushOutcome::Displacing(11)));
        assert_eq!(queue.pop(), Some(90));
        assert_eq!(queue.queued.len(), 15);
    }

    #[test]
    fn a_waiting_login_can_be_removed() {
        let mut queue = HashQueue::new(2);
        let PushOutcome::In(number) = queue.push(client(1), false, 1) else {
            panic!("no room");
        };
        assert_eq!(
            (queue.remove(number), queue.remove(number)),
            (Some(1), None)
        );
        assert_eq!(queue.pop(), None);
    }
}
