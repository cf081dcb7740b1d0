use super::plan::thousands;
use super::*;
use crate::load::Length;

fn options() -> Options {
    Options {
        extent: Extent::Usual,
        as_published: false,
        rounds: None,
        seconds: None,
        warm_up_seconds: None,
        timeout_seconds: None,
        server_cpus: 2,
        client_cpus: 2,
        node: "anthill".to_owned(),
        node_share: 0.01,
    }
}

#[test]
fn every_suite_has_valid_workloads_and_unique_scenarios() {
    for suite in SUITES {
        for extent in [Extent::Quick, Extent::Usual, Extent::Full] {
            let options = Options {
                extent,
                ..options()
            };
            let plan = (suite.lay_out)(&options);
            let mut ids = std::collections::BTreeSet::new();
            for case in plan.groups.iter().flat_map(|group| &group.cases) {
                assert_eq!(case.workload.check(), Ok(()), "{}", case.scenario.id);
                assert!(ids.insert(&case.scenario.id), "{} twice", case.scenario.id);
            }
            assert!(!ids.is_empty());
            let full = Options {
                extent: Extent::Full,
                ..self::options()
            };
            let shorter = plan.rounds <= (suite.lay_out)(&full).rounds;
            assert!(shorter, "{}", suite.name);
        }
    }
}

#[test]
fn the_users_numbers_override_the_defaults() {
    let asked = Options {
        extent: Extent::Quick,
        rounds: Some(9),
        seconds: Some(0.25),
        warm_up_seconds: Some(0.0),
        ..options()
    };
    for suite in SUITES {
        let plan = (suite.lay_out)(&asked);
        assert_eq!(plan.rounds, 9, "{}", suite.name);
        for case in plan.groups.iter().flat_map(|group| &group.cases) {
            // wrk accepts only whole seconds.
            let seconds = if case.driver.is_some() { 1.0 } else { 0.25 };
            assert_eq!(
                case.workload.length,
                Length::Seconds(seconds),
                "{}",
                suite.name
            );
            assert_eq!(case.workload.warm_up_seconds, 0.0, "{}", suite.name);
        }
    }
}

#[test]
fn usual_selections_are_in_the_catalogue() {
    let catalogue = crate::catalogue::Catalogue::load(None).expect("the built-in catalogue");
    for suite in SUITES {
        for group in (suite.lay_out)(&options()).groups {
            let able = catalogue
                .entries()
                .iter()
                .filter(|entry| group.selection.lacking(entry).is_none());
            let usual = group.selection.usual.clone();
            let present = able.filter(|entry| usual.is_empty() || usual.contains(&entry.name));
            assert!(present.count() > 0, "{}", suite.name);
            for name in usual {
                let _ = catalogue.contender(&name).expect("a name of the catalogue");
            }
        }
    }
}

#[test]
fn thousands_have_commas() {
    assert_eq!(thousands(10), "10");
    assert_eq!(thousands(1_500), "1,500");
    assert_eq!(thousands(1_000_000), "1,000,000");
}
