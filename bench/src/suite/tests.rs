use super::*;

fn wishes() -> Wishes {
    Wishes {
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
fn every_suite_has_valid_plans_and_unique_scenarios() {
    for suite in SUITES {
        for extent in [Extent::Quick, Extent::Usual, Extent::Full] {
            let wishes = Wishes { extent, ..wishes() };
            let programme = (suite.lay_out)(&wishes);
            let mut ids = std::collections::BTreeSet::new();
            for case in programme.acts.iter().flat_map(|act| &act.cases) {
                assert_eq!(case.plan.check(), Ok(()), "{}", case.scenario.id);
                assert!(ids.insert(&case.scenario.id), "{} twice", case.scenario.id);
            }
            assert!(!ids.is_empty());
            let full = Wishes {
                extent: Extent::Full,
                ..self::wishes()
            };
            let shorter = programme.rounds <= (suite.lay_out)(&full).rounds;
            assert!(shorter, "{}", suite.name);
        }
    }
}

#[test]
fn the_users_numbers_override_the_defaults() {
    let asked = Wishes {
        extent: Extent::Quick,
        rounds: Some(9),
        seconds: Some(0.25),
        warm_up_seconds: Some(0.0),
        ..wishes()
    };
    for suite in SUITES {
        let programme = (suite.lay_out)(&asked);
        assert_eq!(programme.rounds, 9, "{}", suite.name);
        for case in programme.acts.iter().flat_map(|act| &act.cases) {
            // wrk accepts only whole seconds.
            let seconds = if case.driver.is_some() { 1.0 } else { 0.25 };
            assert_eq!(case.plan.length, Length::Seconds(seconds), "{}", suite.name);
            assert_eq!(case.plan.warm_up_seconds, 0.0, "{}", suite.name);
        }
    }
}

#[test]
fn usual_casts_are_in_the_catalogue() {
    let catalogue = crate::catalogue::Catalogue::load(None).expect("the built-in catalogue");
    for suite in SUITES {
        for act in (suite.lay_out)(&wishes()).acts {
            let able = catalogue
                .entries()
                .iter()
                .filter(|entry| act.cast.lacking(entry).is_none());
            let usual = act.cast.usual.clone();
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
