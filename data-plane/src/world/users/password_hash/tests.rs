//! Tests with hashes from `openssl passwd`, `htpasswd` and crypt(3).

use std::process::Command;

use crate::world::users::password_hash::*;

#[rustfmt::skip]
const MADE_BY_OTHERS: &[(&str, &str)] = &[
    ("secret", "$6$qa58n9Hw2Kyr6tVK$1jLdBegvGGHzjL0jY3w61ETLUI5bDch27Eyo5D1lFGngEmt7Wnb5ADli1gaeK2u4RMl.Nwdq.V3QJbgVsTPVl0"),
    ("secret", "$apr1$LJdupv/p$TM3otWT/drg.dyCCfKu7w0"),
    ("secret", "$1$K5F2asA3$TBWAhsdkL0PKWVjbGaqaQ."),
    ("", "$apr1$nTrCiyks$SAe2ovLM1bzoRDRBjosD/1"),
    ("", "$1$oJkFo.XR$9cSk86l9OKZ2drF2auXXn1"),
    ("pässwörd", "$6$N70k.0.WVPMV97fe$zmXv6dahGr9aRe2vd1yvBUszJ7L6JY2UZwRlpjcwS8P5OCqrIh2kMjxNTsnIc7wtFefhmpAfPPWdTzTT.ESMA0"),
    ("pässwörd", "$apr1$RJMhx9EP$hC9uy9geqHGTU0HjZMvIH0"),
    ("pässwörd", "$1$ihwhI7BC$XqHIUEHx6YP38NWDvRZ.00"),
    ("a", "$6$jthbOUgvS1mVrIyG$CJmkkBH.F0U2x4FOwsOUi/R5.UTAXbUkm6LpxHVeZTlqXXElj.yGzmkam2vRg.6SxPKsmfMbhYu9afbIpXA3Z0"),
    ("a", "$apr1$xD56u09m$pcUkCqkZYHjCOWYYGRf.L0"),
    ("a", "$1$UEhrhDuj$ALaRuYZGA2o/.FIIUwRU/1"),
    ("0123456789abcdef", "$6$rvP3lygzlZ1iK7hZ$SAdIO1zSHeGP5RO3XKxFhVsId3YTYeGC72BcGvkvVzOHtt5mc3TuCD/.5yesKcBHSxah7KBYtALbhY.g.bZ8y."),
    ("0123456789abcdef", "$apr1$AbpKGaA/$dZhWrCiS.qynfCV8Twjch0"),
    ("0123456789abcdef", "$1$u1sx/rAn$gSi2uf8ehx18qXP7TapxS."),
    ("0123456789abcdef0", "$6$CoUWTTx5Rjv/1uMb$1AMNfKzuuQqNcuQ9fIu4doTTiqDU3MyclrMhUH06JhZaVtwNd33v1nkeofdRUqOoRHGagcrIT.FUSgs3e/GwJ0"),
    ("0123456789abcdef0", "$apr1$cxWzqulZ$rvf6V9gNLN5n/cnndiriQ1"),
    ("0123456789abcdef0", "$1$1AzlPT7u$IRHM/8rf0WT6WKcrqgAin1"),
    ("The quick brown fox jumps over the lazy dog, twice, and then some more until it is long", "$6$2BLCqggM2l3/EqWS$uEWwmpT70X81s.fMeWyn03uGpwrWW83QRcs/rExKiep7yfC6ivHNUFJZRANwdOaNFkfsEM9zSNyJvIoYT7drn/"),
    ("The quick brown fox jumps over the lazy dog, twice, and then some more until it is long", "$apr1$Pk7EPTwz$th84LyC7DwtH9JlXCd4N1/"),
    ("The quick brown fox jumps over the lazy dog, twice, and then some more until it is long", "$1$vXs96XvE$kRbxL6RAB1VdqkQqrgILW1"),
    ("secret", "$6$rounds=1234$saltstring$jEjbdVgI3DJ2.2esJ0sGPhhOCjuOMC3NT4lLq17ZGmWxZHhdBv5MlVgCU2CU8OvKOT9He.hkrN.SUx28Eu6OE0"),
    ("", "$6$rounds=1000$$NPMepfN3/Cv.LPoa7suAzCVH3BhfhhB2wHuwY51WjZgqg.e601K6RWCJ7AHYXHZcp4ilHQ0xlpG1yRxSYX3TP/"),
    ("secret", "$2y$04$9T5psR.4ZP6dvOgEsrq4AuFkm7g/L84RJvjfAM.7Gyn65gbPUe/EO"),
    ("pässwörd", "$2y$04$3y4RErnWP9vbtfvyaMbQVuCBo9WBb0DvaU19.aQUEdO.G4T8n//Pq"),
    ("secret", "$6$YcGZB9SYLiqUcKDi$AUfXK9de1JemomhzIMaqVNga5gq8B6eXaWsBglv0ux0THOutbKzr/jN6P2EZqKA/6eLScCIftniUwcp89faTc."),
    ("secret", "$apr1$GYLN5QJr$/jMm/tbnx7blyPEV5VJWA0"),
    ("secret", "$2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"),
    ("secret", "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"),
];

#[test]
fn hashes_of_other_programs_are_verified() {
    for (password, text) in MADE_BY_OTHERS {
        let hash = PasswordHash::parse(text).unwrap();
        assert!(hash.verify(password.as_bytes()), "{password} {text}");
        assert!(!hash.verify(format!("{password}x").as_bytes()), "{text}");
        assert!(!hash.verify(b"another"), "{text}");
        // A change of a character near the end results in another valid hash.
        let (before, after) = text.split_at(text.len() - 10);
        let other = if after.starts_with('.') { "/" } else { "." };
        let changed = PasswordHash::parse(&format!("{before}{other}{}", &after[1..])).unwrap();
        assert!(!changed.verify(password.as_bytes()), "{text}");
    }
}

/// Examples in the specification of SHA-512-crypt.
#[rustfmt::skip]
const SPECIFIED: &[(&str, &str)] = &[
    ("Hello world!", "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1"),
    ("Hello world!", "$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v."),
    ("This is just a test", "$6$rounds=5000$toolongsaltstrin$lQ8jolhgVRVhY4b5pZKaysCLi0QBxGoNeKQzQ3glMhwllF7oGDZxUhx1yxdYcz/e1JSbq3y6JMxxl8audkUEm0"),
    ("a very much longer text to encrypt.  This one even stretches over morethan one line.", "$6$rounds=1400$anotherlongsalts$POfYwTEok97VWcjxIiSOjiykti.o/pQs.wPvMxQ6Fm7I6IoYN3CmLs66x9t0oSwbtEW7o7UmJEiDwGqd8p4ur1"),
    ("we have a short salt string but not a short password", "$6$rounds=77777$short$WuQyW2YR.hBNpjjRhpYD/ifIw05xdfeEyQoMxIXbkvr0gge1a1x3yRULJ5CCaUeOxFmtlcGZelFl5CxtgfiAc0"),
    ("a short string", "$6$rounds=123456$asaltof16chars..$BtCwjqMJGx5hrJhZywWvt0RLE8uZ4oPwcelCjmw2kSYu.Ec6ycULevoBK25fs2xXgMNrCzIMVcgEJAstJeonj1"),
    ("the minimum number is still observed", "$6$rounds=1000$roundstoolow$kUMsbe306n21p9R.FRkW3IGn.S9NPN0x50YhH1xhLsPuWGsUSklZt58jaTfF4ZEQpyUNGc0dqbpBYYBaHHrsX."),
];

#[test]
fn the_test_vectors_of_sha_crypt_are_verified() {
    for (password, text) in SPECIFIED {
        let hash = PasswordHash::parse(text).unwrap();
        assert!(hash.verify(password.as_bytes()), "{password} {text}");
    }
}

/// Returns the first line of a program's output, or `None` if the program is missing or fails.
fn line_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.to_owned();
    output.status.success().then_some(line)
}

#[test]
fn new_hashes_of_openssl_and_htpasswd_are_verified() {
    for password in [
        "secret",
        "p\u{e4}ss w\u{f6}rd",
        "sixteen bytes ok",
        "seventeen bytes !",
    ] {
        let openssl =
            ["-6", "-apr1", "-1"].map(|scheme| line_of("openssl", &["passwd", scheme, password]));
        let htpasswd = ["-nbBC4", "-nbm"].map(|flags| {
            let line = line_of("htpasswd", &[flags, "user", password])?;
            line.strip_prefix("user:").map(str::to_owned)
        });
        for text in openssl.into_iter().chain(htpasswd).flatten() {
            assert!(
                PasswordHash::parse(&text)
                    .unwrap()
                    .verify(password.as_bytes()),
                "{password} {text}"
            );
        }
    }
}

/// The lengths are around multiples of the digest and block sizes, up to the maximum of openssl.
#[test]
fn long_passwords_match_openssl() {
    for length in [1, 63, 64, 65, 127, 128, 129, 256] {
        let password: String = ('!'..='~').cycle().take(length).collect();
        for scheme in ["-6", "-1"] {
            let arguments = ["passwd", scheme, "-salt", "saltsalt", "--", &password];
            let Some(text) = line_of("openssl", &arguments) else {
                continue;
            };
            let hash = PasswordHash::parse(&text).unwrap();
            assert!(hash.verify(password.as_bytes()), "{password} {text}");
        }
    }
}

#[test]
fn hashes_of_hash_password_are_verified() {
    let text = hash_password(b"secret").unwrap();
    assert!(text.starts_with("$2y$10$"));
    assert!(PasswordHash::parse(&text).unwrap().verify(b"secret"));
    assert_eq!(hash_password(&[b'x'; 72]), Err(PasswordTooLong));
    assert!(matches!(
        PasswordHash::parse(STAND_IN),
        Ok(PasswordHash::Bcrypt(_))
    ));
}

#[test]
fn unsupported_and_malformed_hashes_are_refused_by_name() {
    #[rustfmt::skip]
    let table = [
        ("{SHA}EfatjsUqKYSrqv18O1FlA3hcIHI=", "SHA-1"),
        ("gS.09ItMGiY4Y", "DES"),
        ("$5$tNMKf67YixDQ.a1y$tN04HP0EBOmTezTPNKhCw0i58nzaMoP7H.M/TBsj9f3", "SHA-256-crypt"),
        ("$y$j9T$abc$def", "yescrypt"),
        ("$argon2id$v=19$m=65536", "Argon2"),
        ("$2x$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", "$2x$"),
        ("$9$x", "unknown scheme"),
        ("secret", "plain text"),
        ("", "plain text"),
        ("$2y$04$short", "bcrypt, but is malformed"),
        ("$2y$03$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", "bcrypt, but is malformed"),
        ("$2y$31$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", "cost 31"),
        ("$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WI:W", "bcrypt, but is malformed"),
        ("$1$salt", "MD5-crypt, but is malformed"),
        ("$1$saltsalts$K5F2asA3TBWAhsdkL0PKWV", "MD5-crypt, but is malformed"),
        ("$apr1$salt$TBWAhsdkL0PKWVjbGaqa", "MD5-crypt, but is malformed"),
        ("$6$salt$tooshort", "SHA-512-crypt, but is malformed"),
        ("$6$rounds=10$saltstring$jEjbdVgI3DJ2.2esJ0sGPhhOCjuOMC3NT4lLq17ZGmWxZHhdBv5MlVgCU2CU8OvKOT9He.hkrN.SUx28Eu6OE0", "SHA-512-crypt, but is malformed"),
    ];
    for (text, name) in table {
        let error = PasswordHash::parse(text).unwrap_err();
        assert!(error.contains(name), "{text}: {error}");
    }
}
