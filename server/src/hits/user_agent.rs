//! Who asks: people, or programs that say so in User-Agent.

use crate::base::hash::FastBuildHasher;

/// What was found of the last few: most requests come with one of them, and reading it through costs
/// more than all else about a view.
#[derive(Default)]
pub struct UserAgentCache {
    hashes: FastBuildHasher,
    /// Whose two hashes are the same deceives nobody but the count.
    known: Vec<(u64, bool)>,
}

impl UserAgentCache {
    /// As [`is_bot`].
    pub fn is_bot(&mut self, agent: Option<&[u8]>) -> bool {
        let Some(agent) = agent else { return true };
        if self.known.is_empty() {
            self.known = vec![(0, true); KNOWN];
        }
        let hash = self.hashes.of(agent);
        let place = &mut self.known[hash as usize % KNOWN];
        if place.0 != hash {
            *place = (hash, is_bot(Some(agent)));
        }
        place.1
    }
}

/// So many are remembered.
const KNOWN: usize = 64;

/// Does this User-Agent call itself a program that reads on its own? Who says nothing is one too:
/// every browser says something.
fn is_bot(agent: Option<&[u8]>) -> bool {
    let Some(agent) = agent.filter(|agent| !agent.is_empty()) else {
        return true;
    };
    // One pass, for this is asked for each request: a letter that begins none of the words is left
    // at once.
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
    fn what_is_remembered_is_the_same() {
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
    fn people_and_programs() {
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
