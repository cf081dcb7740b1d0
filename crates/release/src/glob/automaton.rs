//! Automaton of a glob: a set of states that is followed through the text byte by byte.
//!
//! State N stands for "the part of the glob before N matches the text so far". A set of states is a bit mask, so a step
//! handles 64 states at once. Braces add states and no copies of the glob.

use super::parser::{Node, Token};
use std::collections::HashMap;

/// Automaton of a part of a glob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Automaton {
    /// Machine words of a set of states: 1, 5 or 17.
    words: usize,
    /// Set before the first byte.
    start: Box<[u64]>,
    /// The only final state.
    end: usize,
    /// Row of `rows` for each byte.
    row_of_byte: Box<[u8; 256]>,
    /// Sets of the states that match a byte literally or by a class, and continue with the next state.
    rows: Box<[u64]>,
    /// `?`
    ones: Box<[u64]>,
    has_ones: bool,
    /// `*`, and so states that stay for each byte but a slash.
    stars: Box<[u64]>,
    /// `**`, and the second states of `**/`: states that stay for each byte.
    acrosses: Box<[u64]>,
    /// States that continue with the next state without a byte.
    skips: Box<[u64]>,
    /// First states of `**/`, which continue with the next state but one without a byte.
    double_skips: Box<[u64]>,
    /// Continuations without a byte at braces, in the order of the first state.
    jumps: Box<[(u16, u16)]>,
    /// States with a jump.
    jumping: Box<[u64]>,
    has_folders: bool,
}

/// Meaning of a state.
enum State {
    Byte(u8),
    Class {
        not: bool,
        ranges: Vec<(u8, u8)>,
    },
    One,
    Star,
    Across,
    /// Before the folders of `**/`.
    Folders,
    /// Between the folders of `**/`.
    InFolders,
    /// Beginning of a group, or end of a branch.
    Jump,
}

impl Automaton {
    /// Builds the automaton. With `strips_slash`, a slash at the beginning of the glob counts as absent.
    pub(super) fn new(nodes: &[Node], strips_slash: bool) -> Automaton {
        let mut states = States::default();
        states.push_all(nodes);
        states.jumps.sort_unstable();
        let end = states.list.len();
        let words = match end / 64 + 1 {
            1 => 1,
            2..=5 => 5,
            _ => WORDS_MAX,
        };
        let none = || vec![0; words].into_boxed_slice();
        let mut automaton = Automaton {
            words,
            start: none(),
            end,
            row_of_byte: Box::new([0; 256]),
            rows: Box::default(),
            ones: none(),
            has_ones: false,
            stars: none(),
            acrosses: none(),
            skips: none(),
            double_skips: none(),
            jumps: Box::default(),
            jumping: none(),
            has_folders: false,
        };
        let mut rows = vec![0; 256 * words];
        for (at, state) in states.list.iter().enumerate() {
            let mut add = |byte: u8| set_bit(&mut rows[usize::from(byte) * words..], at);
            match state {
                State::Byte(byte) => add(*byte),
                State::Class { not, ranges } => (0..=u8::MAX)
                    .filter(|byte| Token::class_contains(*not, ranges, *byte))
                    .for_each(add),
                State::One => {
                    set_bit(&mut automaton.ones, at);
                    automaton.has_ones = true;
                }
                State::Star => {
                    set_bit(&mut automaton.stars, at);
                    set_bit(&mut automaton.skips, at);
                }
                State::Across => {
                    set_bit(&mut automaton.acrosses, at);
                    set_bit(&mut automaton.skips, at);
                }
                State::Folders => {
                    set_bit(&mut automaton.skips, at);
                    set_bit(&mut automaton.double_skips, at);
                    automaton.has_folders = true;
                }
                State::InFolders => {
                    add(b'/');
                    set_bit(&mut automaton.acrosses, at);
                }
                State::Jump => {}
            }
        }
        for (from, _) in &states.jumps {
            set_bit(&mut automaton.jumping, usize::from(*from));
        }
        automaton.jumps = states.jumps.into_boxed_slice();
        automaton.share_rows(&rows);
        automaton.start = automaton.first_states(&states.list, strips_slash);
        automaton
    }

    /// Keeps one row for all bytes with equal rows. Most bytes do not occur in a glob.
    fn share_rows(&mut self, rows: &[u64]) {
        let mut known: HashMap<&[u64], u8> = HashMap::new();
        let mut shared = Vec::new();
        for (row, number) in rows
            .chunks_exact(self.words)
            .zip(self.row_of_byte.iter_mut())
        {
            // At most 256 rows differ, so the number of a row is a byte.
            let next = u8::try_from(known.len()).unwrap_or(u8::MAX);
            *number = *known.entry(row).or_insert_with(|| {
                shared.extend_from_slice(row);
                next
            });
        }
        self.rows = shared.into_boxed_slice();
    }

    /// Returns the states before the first byte. The slash of each alternative that begins with a slash is stripped.
    fn first_states(&self, states: &[State], strips_slash: bool) -> Box<[u64]> {
        let mut begins = vec![0; self.words];
        set_bit(&mut begins, 0);
        self.jump(&mut begins);
        let mut first = vec![0; self.words];
        for (at, state) in states.iter().enumerate() {
            if has_bit(&begins, at) {
                let is_slash = strips_slash && matches!(state, State::Byte(b'/'));
                set_bit(&mut first, at + usize::from(is_slash));
            }
        }
        if has_bit(&begins, self.end) {
            set_bit(&mut first, self.end);
        }
        first.into_boxed_slice()
    }

    /// Follows the jumps of a set once. A jump leads to a later state, and the jumps are sorted, so one pass follows
    /// each chain of jumps.
    fn jump(&self, set: &mut [u64]) {
        for (from, to) in &self.jumps {
            if has_bit(set, usize::from(*from)) {
                set_bit(set, usize::from(*to));
            }
        }
    }

    /// Returns true if the automaton matches the whole text. Adds the number of changed words to `steps`.
    pub(super) fn matches(&self, text: &[u8], steps: &mut u64) -> bool {
        match self.words {
            1 => self.run::<1>(text, steps),
            5 => self.run::<5>(text, steps),
            _ => self.run::<WORDS_MAX>(text, steps),
        }
    }

    fn run<const WORDS: usize>(&self, text: &[u8], steps: &mut u64) -> bool {
        let mut set: [u64; WORDS] = words(&self.start);
        // Sets of the next positions, for `?` and characters of several bytes.
        let mut later = [[0; WORDS]; LATER];
        self.close(&mut set, steps);
        for (at, byte) in text.iter().enumerate() {
            let mut next = self.advance(&set, *byte);
            if self.has_ones {
                if *byte != b'/' {
                    let taken = 1 + continuation_bytes(&text[at + 1..]);
                    let later = &mut later[(at + taken) % LATER];
                    add_next(later, &intersection(&set, &words(&self.ones)));
                }
                let now = std::mem::replace(&mut later[(at + 1) % LATER], [0; WORDS]);
                add(&mut next, &now);
            }
            self.close(&mut next, steps);
            set = next;
            let is_empty = |set: &[u64; WORDS]| set.iter().all(|word| *word == 0);
            if is_empty(&set) && (!self.has_ones || later.iter().all(is_empty)) {
                return false;
            }
        }
        has_bit(&set, self.end)
    }

    /// Returns the states after a byte, without the continuations that take no byte.
    fn advance<const WORDS: usize>(&self, set: &[u64; WORDS], byte: u8) -> [u64; WORDS] {
        let row = usize::from(self.row_of_byte[usize::from(byte)]) * WORDS;
        let row = words(&self.rows[row..row + WORDS]);
        let mut next = intersection(set, &words(&self.acrosses));
        if byte != b'/' {
            add(&mut next, &intersection(set, &words(&self.stars)));
        }
        add_next(&mut next, &intersection(set, &row));
        next
    }

    /// Adds the states that are reached without a byte.
    fn close<const WORDS: usize>(&self, set: &mut [u64; WORDS], steps: &mut u64) {
        let mut rounds = 0;
        loop {
            let before = *set;
            let skipped = intersection(set, &words(&self.skips));
            if self.has_folders {
                let double = intersection(set, &words(&self.double_skips));
                let mut between = [0; WORDS];
                add_next(&mut between, &double);
                add_next(set, &between);
            }
            add_next(set, &skipped);
            rounds += 1;
            *steps += WORDS as u64;
            let jumping = intersection(set, &words(&self.jumping));
            if jumping.iter().all(|word| *word == 0) {
                // `***/` has `*` before the folders.
                if !self.has_folders || rounds == 2 || *set == before {
                    return;
                }
                continue;
            }
            self.jump(set);
            *steps += self.jumps.len() as u64;
            // Braces chain skips and jumps, at most once for each jump.
            if *set == before {
                return;
            }
        }
    }

    /// Returns the bytes of memory of the automaton.
    pub(super) fn memory_bytes(&self) -> usize {
        let sets = self.rows.len() + 7 * self.words;
        size_of::<Automaton>() + 256 + sets * size_of::<u64>() + self.jumps.len() * 4
    }
}

/// Machine words of the largest set: a glob has at most 1,024 bytes, a state for each byte, and the final state.
const WORDS_MAX: usize = 17;
/// Sets of later positions: a character has at most 4 bytes.
const LATER: usize = 4;

/// States in the making.
#[derive(Default)]
struct States {
    list: Vec<State>,
    jumps: Vec<(u16, u16)>,
}

impl States {
    fn push_all(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Token(token) => self.push(token),
                Node::Group(branches) => self.push_group(branches),
            }
        }
    }

    fn push(&mut self, token: &Token) {
        if *token == Token::Folders {
            self.list.push(State::Folders);
        }
        self.list.push(match token {
            Token::Byte(byte) => State::Byte(*byte),
            Token::One => State::One,
            Token::Star => State::Star,
            Token::Across => State::Across,
            Token::Folders => State::InFolders,
            Token::Class { not, ranges } => State::Class {
                not: *not,
                ranges: ranges.clone(),
            },
        });
    }

    /// Lays the branches out one behind the other. A state before the first branch jumps to each branch, and a state
    /// behind each branch jumps to the end of the group.
    fn push_group(&mut self, branches: &[Vec<Node>]) {
        let fork = self.list.len();
        let mut ends = Vec::new();
        self.list.push(State::Jump);
        for branch in branches {
            self.jumps.push((position(fork), position(self.list.len())));
            self.push_all(branch);
            ends.push(self.list.len());
            self.list.push(State::Jump);
        }
        let end = position(self.list.len());
        self.jumps
            .extend(ends.into_iter().map(|from| (position(from), end)));
    }
}

/// Returns the number of a state. A glob of 1,024 bytes has fewer states than a number of 16 bits has values.
fn position(state: usize) -> u16 {
    u16::try_from(state).unwrap_or(u16::MAX)
}

/// Returns the number of bytes that belong to the character of the byte before the text, at most 3.
fn continuation_bytes(text: &[u8]) -> usize {
    let bytes = text.iter().take(LATER - 1);
    bytes.take_while(|byte| **byte & 0xc0 == 0x80).count()
}

fn words<const WORDS: usize>(set: &[u64]) -> [u64; WORDS] {
    std::array::from_fn(|word| set[word])
}

fn intersection<const WORDS: usize>(set: &[u64; WORDS], other: &[u64; WORDS]) -> [u64; WORDS] {
    std::array::from_fn(|word| set[word] & other[word])
}

fn add<const WORDS: usize>(set: &mut [u64; WORDS], other: &[u64; WORDS]) {
    for (word, other) in set.iter_mut().zip(other) {
        *word |= other;
    }
}

/// Adds the next state of each state of `other`.
fn add_next<const WORDS: usize>(set: &mut [u64; WORDS], other: &[u64; WORDS]) {
    let mut carried = 0;
    for (word, other) in set.iter_mut().zip(other) {
        *word |= other << 1 | carried;
        carried = other >> 63;
    }
}

fn set_bit(set: &mut [u64], at: usize) {
    set[at / 64] |= 1 << (at % 64);
}

fn has_bit(set: &[u64], at: usize) -> bool {
    set[at / 64] >> (at % 64) & 1 == 1
}
