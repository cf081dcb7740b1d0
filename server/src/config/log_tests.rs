//! Tests of `[log]` and of `log` of a site.

use crate::config::{Config, LogTarget, OperatorError, parse};
use base::log::Rotation;
use data_plane::ledger::access_log::AccessLogFormat;
use std::path::Path;

fn read_text(text: &str) -> Result<Config, OperatorError> {
    parse(text, Path::new("/srv/anthill.toml"))
}

fn refusal(text: &str) -> String {
    let refused = read_text(text).expect_err(text);
    refused.to_string()
}

fn config(text: &str) -> Config {
    read_text(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_site_overrides_single_keys_of_the_log() {
    let config = config(
        "[log]\nformat = \"vhost_combined\"\nskip = [\"/a/\", { status = [\"3xx\", 404] }]\nrotate = \"1MiB\"\n\
         [[site]]\nnames = [\"a\"]\nlog = \"a.log\"\n\
         [[site]]\nnames = [\"b\"]\nlog = { format = \"json\", skip = [] }\n",
    );
    assert_eq!(config.log.format, AccessLogFormat::VhostCombined);
    assert_eq!(
        config.log.rotate,
        Some(Rotation {
            bytes_max: 1 << 20,
            keep: 10,
            is_compressed: true
        })
    );
    let [below, moved] = &config.log.skip[..] else {
        panic!("{:?}", config.log.skip);
    };
    assert!(below.paths[0].matches(b"/a/b/c"));
    // Without `status`, refusals other than 404 keep their lines.
    let skipped = [101, 200, 304, 404].map(|status| below.statuses.contains(status));
    assert_eq!(skipped, [true; 4]);
    let kept = [400, 401, 403, 405, 429, 503].map(|status| below.statuses.contains(status));
    assert_eq!(kept, [false; 6]);
    assert!(moved.paths.is_empty() && moved.statuses.contains(399));
    assert!(moved.statuses.contains(404) && !moved.statuses.contains(403));
    let [first, second] = [&config.sites[0].log, &config.sites[1].log];
    assert!(first.access.is_some() && first.format.is_none() && first.skip.is_none());
    assert_eq!(second.access, None);
    assert_eq!(second.format, Some(AccessLogFormat::Json));
    assert_eq!(second.skip, Some(Vec::new()));
}

#[test]
fn a_log_with_the_name_of_a_rotated_file_is_refused() {
    let sites = "[[site]]\nnames = [\"a\"]\nlog = \"a.log\"\n[[site]]\nnames = [\"b\"]\nlog = ";
    let refused = ["a.log.1", "a.log.12.gz", "e.log.2"];
    for name in refused {
        let text = format!("errors = \"e.log\"\n{sites}\"{name}\"\n");
        let message = refusal(&format!("[log]\nrotate = \"1MiB\"\n{text}"));
        assert!(message.contains("replaces this log"), "{message}");
        config(&format!("[log]\n{text}"));
    }
    for name in ["a.log", "a.log.x", "a.log.1.log", "b.log.1", "1.gz", ".gz"] {
        config(&format!("[log]\nrotate = \"1MiB\"\n{sites}\"{name}\"\n"));
    }
}

#[test]
fn mistakes_are_named_with_the_remedy() {
    for (text, what, help) in [
        (
            "skip = [{}]",
            "the rule of `skip` has neither `path` nor `status`",
            "access = \"off\"",
        ),
        (
            "skip = [{ status = 700 }]",
            "`700` is not a status",
            "such as 304",
        ),
        (
            "skip = [{ status = \"6xx\" }]",
            "`6xx` is not a status",
            "\"2xx\"",
        ),
        (
            "skip = [{ path = \"/[\" }]",
            "the pattern is invalid",
            "`*` stands for",
        ),
        ("skip = [{ paht = \"/\" }]", "unknown key `paht`", "`path`"),
        (
            "rotate = \"1KiB\"",
            "is out of bounds",
            "between \"64KiB\" and \"1024GiB\"",
        ),
        (
            "rotate = { keep = 0 }",
            "`keep` is out of bounds",
            "1 and 1000",
        ),
        (
            "rotate = { max_size = \"1GiB\" }",
            "unknown key `max_size`",
            "did you mean `size`?",
        ),
        (
            "format = \"VCOMBINED\"",
            "`format` can't be \"VCOMBINED\"",
            "\"vhost_combined\"",
        ),
        ("acces = \"a\"", "unknown key `acces`", "`access`"),
    ] {
        let refused = refusal(&format!("[log]\n{text}\n"));
        assert!(
            refused.contains(what) && refused.contains(help),
            "{refused}"
        );
    }
    let refused = refusal("[[site]]\nlog = { rotate = \"1GiB\" }\n");
    assert!(refused.contains("`rotate` belongs in [log]"), "{refused}");
}

#[test]
fn a_service_has_a_rotated_access_log_unless_the_file_names_another() {
    let folder = || Some("/var/log/anthill".into());
    let in_service = |text: &str| config(text).log.in_service_folder(folder());
    let log = in_service("[log]\nformat = \"json\"\n");
    let file = LogTarget::File("/var/log/anthill/access.log".into());
    assert_eq!(*log.access.get_ref(), file);
    assert_eq!(*log.errors.get_ref(), LogTarget::Stderr);
    // The rotation is that of the key without values.
    let plain = config("[log]\naccess = \"/a\"\nrotate = {}\n").log;
    assert_eq!(log.rotate, plain.rotate);
    assert!(log.rotate.is_some());
    let sized = in_service("[log]\nrotate = \"1MiB\"\n");
    assert_eq!(
        sized.rotate.map(|rotation| rotation.bytes_max),
        Some(1 << 20)
    );
    for text in ["\"-\"", "\"off\"", "\"/srv/access.log\""] {
        let text = format!("[log]\naccess = {text}\n");
        assert_eq!(in_service(&text), config(&text).log);
    }
    assert_eq!(config("").log.in_service_folder(None), config("").log);
}

#[test]
fn a_configured_destination_or_rotation_is_known() {
    for text in ["access = \"a\"", "errors = \"stderr\"", "rotate = \"1MiB\""] {
        let text = format!("[log]\n{text}\n");
        assert!(config(&text).log.is_configured(), "{text}");
    }
    assert!(
        !config("[log]\nformat = \"json\"\nskip = [\"/a\"]\n")
            .log
            .is_configured()
    );
}
