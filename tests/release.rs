//! Tests of the crate's features: a build for users contains no code for tests or fuzzing.

use std::fs;
use std::path::Path;

/// Features for tests and fuzz targets. No default feature may include a feature of the list.
const TEST_FEATURES: [&str; 2] = ["test-handlers", "fuzzing"];

/// Modules for tests and fuzz targets: the file, the declaration and the `cfg` attribute before the
/// declaration.
const GATED: [(&str, &str, &str); 5] = [
    (
        "../data-plane/src/handler/mod.rs",
        "pub mod test_handler;",
        r#"#[cfg(feature = "test-handlers")]"#,
    ),
    (
        "../crates/release/src/lib.rs",
        "pub mod invariants;",
        r#"#[cfg(any(test, feature = "fuzzing"))]"#,
    ),
    (
        "../crates/wire/src/lib.rs",
        "pub mod invariants;",
        r#"#[cfg(any(test, feature = "fuzzing"))]"#,
    ),
    (
        "src/git/browse/mod.rs",
        "pub mod invariants;",
        r#"#[cfg(any(test, feature = "fuzzing"))]"#,
    ),
    (
        "../crates/base/src/tar.rs",
        "pub fn check(",
        r#"#[cfg(any(test, feature = "fuzzing"))]"#,
    ),
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_release_has_no_feature_for_tests_or_fuzzing() {
    let manifest = read("Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").expect("[features]");
    let (features, _) = features
        .split_once("\n[")
        .expect("a table after [features]");
    let features: Vec<(&str, &str)> = features
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .collect();
    // Features of a default build.
    let mut reached = vec!["default"];
    let mut next = 0;
    while let Some(name) = reached.get(next).copied() {
        next += 1;
        let lists = features.iter().filter(|(its, _)| *its == name);
        let enabled = lists.flat_map(|(_, list)| list.split(['"', '[', ']', ',', ' ']));
        let enabled: Vec<&str> = enabled.filter(|name| !name.is_empty()).collect();
        reached.extend(enabled);
    }
    assert!(reached.contains(&"markdown"), "{reached:?}");
    let script = read("../tools/release.sh");
    for feature in TEST_FEATURES {
        let is_known = features.iter().any(|(name, _)| *name == feature);
        assert!(is_known, "{feature} is no feature");
        assert!(!reached.contains(&feature), "default includes {feature}");
        assert!(!script.contains(feature), "tools/release.sh has {feature}");
    }
}

#[test]
fn code_for_tests_and_fuzzing_is_gated() {
    for (file, item, gate) in GATED {
        let text = read(file);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with(item));
        let at = at.unwrap_or_else(|| panic!("{file} has no `{item}`"));
        assert_eq!(lines[at - 1], gate, "{file}: the line before `{item}`");
    }
}
