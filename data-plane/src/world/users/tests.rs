//! Tests of valid and invalid user files.

use super::*;

const MD5_SECRET: &str = "$1$K5F2asA3$TBWAhsdkL0PKWVjbGaqaQ.";
const APR1_A: &str = "$apr1$xD56u09m$pcUkCqkZYHjCOWYYGRf.L0";

#[test]
fn comments_blank_lines_and_further_fields_are_accepted() {
    let text = format!(
        "# staff\n\nant:{MD5_SECRET}\r\nb\u{e9}e:{APR1_A}:Bee Ltd:x\nempty user:{APR1_A}  \n"
    );
    let users = Users::parse(text.as_bytes()).unwrap();
    assert_eq!(users.hashes.len(), 3);
    assert!(users.contains("ant") && !users.contains("# staff"));
    assert!(users.verify("ant", b"secret"));
    assert!(users.verify("b\u{e9}e", b"a"));
    assert!(users.verify("empty user", b"a"));
    assert!(!users.verify("ant", b"a"));
    // An unknown user is refused even with the password of the user selected for the comparison.
    for name in ["nobody", "", "Ant", "x", "y", "z"] {
        assert!(
            !users.verify(name, b"secret") && !users.verify(name, b"a"),
            "{name}"
        );
    }
    let none = Users::parse(b"").unwrap();
    assert_eq!(none.hashes.len(), 0);
    assert!(!none.verify("ant", b"secret"));
}

#[test]
fn errors_name_the_line() {
    let table = [
        ("# fine\nno colon here\n".to_owned(), 2, "no `:`"),
        (":x\n".to_owned(), 1, "not a valid user name"),
        (format!("a\tb:{MD5_SECRET}"), 1, "not a valid user name"),
        (
            format!("{}:{MD5_SECRET}", "x".repeat(256)),
            1,
            "not a valid user name",
        ),
        (
            format!("ant:{MD5_SECRET}\nbee:{APR1_A}\nant:{APR1_A}\n"),
            3,
            "a second line",
        ),
        (
            "\n\nant:{SHA}EfatjsUqKYSrqv18O1FlA3hcIHI=\n".to_owned(),
            3,
            "SHA-1",
        ),
        (
            "ant:secret\n".to_owned(),
            1,
            "the hash of `ant` is not a hash",
        ),
    ];
    for (text, line, what) in table {
        let error = Users::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.line, line, "{text}");
        assert!(error.what.contains(what), "{error:?}");
        assert!(!error.help.is_empty() && !error.what.contains(MD5_SECRET));
    }
    assert_eq!(Users::parse(b"a:\xff\n").unwrap_err().line, 1);
}

#[test]
fn equal_files_have_equal_generations() {
    let of = |text: &str| Users::parse(text.as_bytes()).unwrap().generation;
    let text = format!("ant:{MD5_SECRET}\n");
    assert_eq!(of(&text), of(&text));
    assert_ne!(of(&text), of(&format!("{text}\n")));
}

#[test]
fn invalid_names_are_refused() {
    assert!(
        is_name("An ant")
            && !is_name("a:b")
            && !is_name("")
            && !is_name("#x")
            && !is_name("a\u{9b}")
    );
}
