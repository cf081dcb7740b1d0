//! The CPU time that a thread of the generator uses within the window.

use super::course::{Course, Nanos};
use super::cpu::Spent;

/// Takes the thread's CPU time when the window begins and when it ends.
#[derive(Debug, Default)]
pub(super) struct Meter {
    begin: Option<Spent>,
    end: Option<Spent>,
}

impl Meter {
    /// To be told the time, at least at the marks.
    pub(super) fn at(&mut self, now: Nanos, course: &Course) {
        if self.begin.is_none() && now >= course.begin() {
            self.begin = Some(Spent::of_this_thread());
        }
        if self.end.is_none() && course.end().is_some_and(|end| now >= end) {
            self.end = Some(Spent::of_this_thread());
        }
    }

    /// When it wants to be told next.
    pub(super) fn next_mark(&self, course: &Course) -> Option<Nanos> {
        match (self.begin, self.end) {
            (None, _) => Some(course.begin()),
            (_, None) => course.end(),
            _ => None,
        }
    }

    /// What was used within the window, which ends now if it hadn't.
    pub(super) fn spent(self) -> Spent {
        let Some(begin) = self.begin else {
            return Spent::default();
        };
        self.end.unwrap_or_else(Spent::of_this_thread).since(begin)
    }
}
