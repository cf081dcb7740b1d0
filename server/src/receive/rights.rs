//! Rights of a publisher: preview, publish or all.

/// Rights of a publisher. Each right includes the rights before it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rights {
    /// Lists releases, adds releases, and sets labels for previews.
    Preview,
    /// Chooses the served release, and pins releases.
    Publish,
    /// Withdraws releases.
    All,
}

impl Rights {
    /// Words of the rights on the command line.
    pub(crate) const WORDS: [&'static str; 3] = ["preview", "publish", "all"];

    /// Returns the rights with a name.
    pub(crate) fn of(word: &str) -> Option<Rights> {
        let all = [Rights::Preview, Rights::Publish, Rights::All];
        all.into_iter().find(|rights| rights.word() == word)
    }

    /// Returns the name of the rights.
    pub(crate) fn word(self) -> &'static str {
        Rights::WORDS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_have_names_and_an_order() {
        for word in Rights::WORDS {
            assert_eq!(Rights::of(word).map(Rights::word), Some(word));
        }
        assert_eq!(Rights::of("root"), None);
        assert!(Rights::Preview < Rights::Publish && Rights::Publish < Rights::All);
    }
}
