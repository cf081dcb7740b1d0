//! Bounded queue of logins waiting for a hashing thread. No client can fill the queue, and no client waits
//! for all logins of another client. The module is pure.

use base::client_network::share_of;
use base::client_network::{ClientNetwork, may_take};
use base::network_table::{LargeNetworks, NetworkTable};

/// Bounded queue of logins in which clients take turns.
pub(super) struct HashQueue<T> {
    max: usize,
    queued: Vec<QueuedLogin<T>>,
    /// Turn of the last login taken, for each standing.
    turns: [u64; 3],
    numbers: u64,
}

struct QueuedLogin<T> {
    client: ClientNetwork,
    standing: LoginStanding,
    /// Turn of the login. Logins of an earlier turn are taken first. A client has at most a single login in
    /// each turn.
    turn: u64,
    number: u64,
    job: T,
}

/// Standing of a client by its earlier logins. Logins of a better standing are hashed first, and displace others where
/// the queue is full.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum LoginStanding {
    /// The last logins were wrong. Programs that guess passwords soon have the standing, however many addresses they
    /// use.
    Failed,
    /// No login is known.
    Unknown,
    /// A login was right.
    Trusted,
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
            turns: [0; 3],
            numbers: 0,
        }
    }

    /// Replaces the standing of each login by the present standing of its client, except the standing of a trusted login.
    /// A wrong login of the neighbourhood may have been found since the login was queued.
    pub(super) fn reassess(&mut self, standing_of: impl Fn(&T) -> LoginStanding) {
        for login in &mut self.queued {
            let standing = match login.standing {
                LoginStanding::Trusted => LoginStanding::Trusted,
                LoginStanding::Unknown | LoginStanding::Failed => standing_of(&login.job),
            };
            if standing != login.standing {
                login.standing = standing;
                login.turn = self.turns[standing as usize] + 1;
            }
        }
    }

    /// Queues a login of `client`. In a full queue, or if the client's network has its share, the login displaces a login
    /// of a worse standing, or the newest login of a client with at least 2 more. A wide network with more than an eighth
    /// of the queue counts as one client.
    pub(super) fn push(
        &mut self,
        client: ClientNetwork,
        standing: LoginStanding,
        job: T,
    ) -> PushOutcome<T> {
        let mut held = NetworkTable::<usize>::default();
        for login in &self.queued {
            held.change(login.client, |own| *own += 1);
        }
        let large = held.large(share_of(self.max), |own| *own);
        let mut displaced = None;
        if !held.may_take(client, |own| *own, self.queued.len(), 1, self.max) {
            displaced = self.loser_to(client, standing, &held, &large);
            if displaced.is_none() {
                return PushOutcome::Full(job);
            }
        }
        let displaced = displaced.and_then(|number| self.remove(number));
        self.numbers += 1;
        let number = self.numbers;
        let turn = self
            .last_turn(client, &large)
            .max(self.turns[standing as usize])
            + 1;
        self.queued.push(QueuedLogin {
            client,
            standing,
            turn,
            number,
            job,
        });
        match displaced {
            Some(displaced) => PushOutcome::Displacing(displaced),
            None => PushOutcome::In(number),
        }
    }

    /// Returns the number of the login that makes room for a login of `client`.
    fn loser_to(
        &self,
        client: ClientNetwork,
        standing: LoginStanding,
        held: &NetworkTable<usize>,
        large: &LargeNetworks,
    ) -> Option<u64> {
        let own = held.of(client);
        let is_within_share = may_take(own, self.queued.len().saturating_sub(1), self.max);
        let gives_way = |login: &&QueuedLogin<T>| {
            let others = large.counted(login.client, held.of(login.client), Some(client));
            let is_smaller = large.counted(client, own, Some(login.client)) + 1 < others;
            login.standing < standing && is_within_share
                || login.standing <= standing && login.client != client && is_smaller
        };
        let order = |login: &&QueuedLogin<T>| {
            let rank = large.rank(login.client, held.of(login.client), Some(client));
            (
                std::cmp::Reverse(login.standing),
                rank,
                login.turn,
                login.number,
            )
        };
        let loser = self.queued.iter().filter(gives_way).max_by_key(order)?;
        Some(loser.number)
    }

    /// Returns the last turn of the client's logins, or of the logins of its large /56 network. In a larger network the
    /// turn of one customer is not the turn of another.
    fn last_turn(&self, client: ClientNetwork, large: &LargeNetworks) -> u64 {
        let network = large.inner(client);
        let is_own = |login: &&QueuedLogin<T>| match network {
            Some(network) => network.contains(login.client),
            None => login.client == client,
        };
        let own = self.queued.iter().filter(is_own);
        own.map(|login| login.turn).max().unwrap_or(0)
    }

    /// Takes the next login out of the queue.
    pub(super) fn pop(&mut self) -> Option<T> {
        let order = |it: &&QueuedLogin<T>| (std::cmp::Reverse(it.standing), it.turn, it.number);
        let next = self.queued.iter().min_by_key(order)?;
        let (number, turn) = (next.number, next.turn);
        self.turns[next.standing as usize] = turn;
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
    use super::LoginStanding::{Failed, Trusted, Unknown};
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};

    fn client(nth: u8) -> ClientNetwork {
        IpAddr::from([192, 0, 2, nth]).into()
    }

    fn push(queue: &mut HashQueue<u32>, nth: u8, standing: LoginStanding, job: u32) {
        let pushed = queue.push(client(nth), standing, job);
        assert!(matches!(pushed, PushOutcome::In(_)), "{job}");
    }

    fn all(queue: &mut HashQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn clients_are_served_in_turn() {
        let mut queue = HashQueue::new(64);
        for job in 10..14 {
            push(&mut queue, 1, Unknown, job);
        }
        push(&mut queue, 2, Unknown, 20);
        push(&mut queue, 2, Unknown, 21);
        assert_eq!(queue.pop(), Some(10));
        // A client that comes later has the first turn after the current turn.
        push(&mut queue, 3, Unknown, 30);
        assert_eq!(all(&mut queue), [20, 11, 21, 30, 12, 13]);
    }

    #[test]
    fn clients_that_arrive_later_do_not_starve_a_waiting_client() {
        let mut queue = HashQueue::new(64);
        for job in 0..3 {
            push(&mut queue, 1, Unknown, job);
        }
        let mut taken = Vec::new();
        for nth in 2..10 {
            push(&mut queue, nth, Unknown, u32::from(nth) * 10);
            taken.extend(queue.pop());
        }
        assert!(taken.contains(&2), "{taken:?}");
    }

    #[test]
    fn trusted_clients_go_first() {
        let mut queue = HashQueue::new(64);
        push(&mut queue, 1, Unknown, 10);
        push(&mut queue, 2, Trusted, 20);
        push(&mut queue, 2, Trusted, 21);
        push(&mut queue, 3, Trusted, 30);
        assert_eq!(all(&mut queue), [20, 30, 21, 10]);
    }

    #[test]
    fn no_client_fills_the_queue_and_trusted_clients_displace_untrusted_clients() {
        let mut queue = HashQueue::new(16);
        for job in 0..12 {
            push(&mut queue, 1, Unknown, job);
        }
        assert!(matches!(
            queue.push(client(1), Unknown, 12),
            PushOutcome::Full(12)
        ));
        for nth in 2..6 {
            push(&mut queue, nth, Unknown, 100 + u32::from(nth));
        }
        // A client without a login displaces the newest login of the largest client, and a client with as many as
        // the others displaces none.
        let displaced = queue.push(client(8), Unknown, 80);
        assert!(matches!(displaced, PushOutcome::Displacing(11)));
        let displaced = queue.push(client(9), Trusted, 90);
        assert!(matches!(displaced, PushOutcome::Displacing(10)));
        assert_eq!(queue.pop(), Some(90));
        assert_eq!(queue.queued.len(), 15);
    }

    #[test]
    fn a_waiting_login_can_be_removed() {
        let mut queue = HashQueue::new(2);
        let PushOutcome::In(number) = queue.push(client(1), Unknown, 1) else {
            panic!("no room");
        };
        assert_eq!(
            (queue.remove(number), queue.remove(number)),
            (Some(1), None)
        );
        assert_eq!(queue.pop(), None);
    }

    fn v6(last: u16) -> ClientNetwork {
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, last, 0, 0, 0, 1)).into()
    }

    /// Queues logins until the queue refuses one.
    fn fill(
        queue: &mut HashQueue<u32>,
        standing: LoginStanding,
        client: impl Fn(u32) -> ClientNetwork,
    ) {
        let pushed = (0..1_000).map(|nth| queue.push(client(nth), standing, nth));
        assert!(
            pushed
                .take(200)
                .any(|pushed| matches!(pushed, PushOutcome::Full(_)))
        );
    }

    #[test]
    fn the_networks_of_one_prefix_take_turns_as_one_client() {
        let mut queue = HashQueue::new(64);
        fill(&mut queue, Unknown, |nth| v6(nth as u16 % 256));
        assert!(queue.queued.len() >= 48);
        // A household in another /56 of the same /48, and one elsewhere.
        for (client, job) in [(v6(0xaa00), 5_000), (client(1), 5_001)] {
            assert!(!matches!(
                queue.push(client, Unknown, job),
                PushOutcome::Full(_)
            ));
        }
        // Further logins of the prefix do not displace them, and both are hashed in the next turns.
        fill(&mut queue, Unknown, |nth| v6(nth as u16 % 256));
        let first: Vec<u32> = (0..12).map_while(|_| queue.pop()).collect();
        assert!(
            first.contains(&5_000) && first.contains(&5_001),
            "{first:?}"
        );
    }

    #[test]
    fn a_login_that_waits_gets_the_present_standing_of_its_client() {
        let mut queue = HashQueue::new(4);
        for (nth, job) in [(1, 10), (1, 11), (2, 20), (3, 30)] {
            push(
                &mut queue,
                nth,
                if nth == 2 { Trusted } else { Unknown },
                job,
            );
        }
        assert_eq!(queue.pop(), Some(20));
        assert_eq!(queue.pop(), Some(10));
        // The first login was wrong, so the client's next one goes behind, and gives way.
        queue.reassess(|job| if *job < 30 { Failed } else { Unknown });
        push(&mut queue, 4, Unknown, 40);
        push(&mut queue, 5, Unknown, 50);
        let displaced = queue.push(client(6), Unknown, 60);
        assert!(matches!(displaced, PushOutcome::Displacing(11)));
        assert_eq!(all(&mut queue), [30, 40, 50, 60]);
    }

    #[test]
    fn clients_with_failed_logins_make_room_for_unknown_clients() {
        let mut queue = HashQueue::new(64);
        fill(&mut queue, Failed, |nth| client(nth as u8));
        assert_eq!(queue.queued.len(), 64);
        assert!(matches!(
            queue.push(v6(1), Unknown, 5_000),
            PushOutcome::Displacing(_)
        ));
        fill(&mut queue, Failed, |nth| client(nth as u8));
        assert_eq!(queue.pop(), Some(5_000));
        // Unknown clients with a login each do not displace one another.
        let mut queue = HashQueue::new(64);
        fill(&mut queue, Unknown, |nth| client(nth as u8));
        assert!(matches!(
            queue.push(v6(1), Unknown, 5_000),
            PushOutcome::Full(_)
        ));
    }
}
