//! Method `random`: each candidate is equally likely, whatever its load.

use crate::contest::Contest;

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    let candidates = contest.candidates;
    candidates[contest.random.below(candidates.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::test_contest::TestContest;

    #[test]
    fn every_member_is_chosen_about_equally_often() {
        let mut contest = TestContest::new(pick, &[100; 4]);
        let counts = contest.counts(4_000);
        assert!(
            counts.iter().all(|count| (900..=1_100).contains(count)),
            "{counts:?}"
        );
    }
}
