//! Classification of User-Agent values: browsers, and programs that identify themselves as programs.

use base::hash::FastBuildHasher;

/// Cache of classified User-Agent values. Most requests carry one of a few values, and the scan of a value
/// costs more than the rest of counting a view.
#[derive(Default)]
pub(crate) struct UserAgentCache {
    hashes: FastBuildHasher,
    /// Hash and result by slot. Two values with equal hashes share a result, and only the count suffers.
    known: Vec<(u64, bool)>,
}

impl UserAgentCache {
    /// Returns true if the User-Agent value names an automated client, as [`is_bot`] does.
    pub(crate) fn is_bot(&mut self, agent: Option<&[u8]>) -> bool {
        let Some(agent) = agent else { return true };
        if self.known.is_empty() {
            self.known = vec![(0, true); SLOTS];
        }
        let hash = self.hashes.of(agent);
        let slot = &mut self.known[hash as usize % SLOTS];
        if slot.0 != hash {
            *slot = (hash, is_bot(Some(agent)));
        }
        slot.1
    }
}

/// Slots of the cache.
const SLOTS: usize = 64;

/// Returns true if the User-Agent value names an automated client. A missing or empty value counts as an
/// automated client, because every browser sends a value.
fn is_bot(agent: Option<&[u8]>) -> bool {
    let Some(agent) = agent.filter(|agent| !agent.is_empty()) else {
        return true;
    };
    // The scan is a single pass, because each request pays for it: a letter that begins none of the words
    // is skipped at once.
    agent.iter().enumerate().any(|(at, byte)| {
        let words: &[&[u8]] = match byte | 0x20 {
            b'b' => &[b"bot"],
            b'c' => &[b"crawl", b"curl/", b"check_http"],
            b'f' => &[b"facebookexternalhit", b"feed", b"fetch"],
            b'g' => &[b"go-http-client"],
            b'h' => &[b"http_request", b"httpclient", b"headlesschrome"],
            b'l' => &[b"libwww", b"lighthouse"],
            b'm' => &[b"monitor"],
            b'o' => &[b"okhttp"],
            b'p' => &[b"python", b"preview"],
            b's' => &[b"spider", b"slurp", b"scrap"],
            b'w' => &[b"wget/"],
            _ => return false,
        };
        let rest = &agent[at..];
        words.iter().any(|word| {
            rest.get(..word.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(word))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_results_equal_computed_results() {
        let mut agents = UserAgentCache::default();
        for _ in 0..2 {
            assert!(agents.is_bot(None) && agents.is_bot(Some(b"")));
            for nth in 0..200 {
                let person = format!("Mozilla/5.0 Firefox/{nth}");
                let bot = format!("Mozilla/5.0 examplebot/{nth}");
                assert!(!agents.is_bot(Some(person.as_bytes())), "{person}");
                assert!(agents.is_bot(Some(bot.as_bytes())), "{bot}");
            }
        }
    }

    #[test]
    fn browsers_and_programs_are_told_apart() {
        for (agent, expected) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
                false,
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15",
                false,
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36 Edg/138.0.0.0",
                false,
            ),
            ("Lynx/2.9.0dev.12 libwww-FM/2.14", true),
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                true,
            ),
            ("Mozilla/5.0 (compatible; bingbot/2.0)", true),
            ("Mozilla/5.0 (compatible; Yahoo! Slurp)", true),
            (
                "Baiduspider+(+http://www.baidu.com/search/spider.htm)",
                true,
            ),
            ("curl/8.5.0", true),
            ("Wget/1.21", true),
            ("python-requests/2.32", true),
            ("Go-http-client/1.1", true),
            ("Feedly/1.0", true),
            ("", true),
        ] {
            assert_eq!(is_bot(Some(agent.as_bytes())), expected, "{agent}");
        }
        assert!(is_bot(None));
    }
}
