//! Agreement of the kit's load generator with wrk: both load the same server with the same settings in turn
//! on one start, so that the rounds of a pair share server, memory and time.
//!
//! A pair is evidence only where the server is the limit: there the client cannot change the result, and a
//! difference is a measurement error. The client's use of its processor shows which side is the limit.

use super::{Act, Case, Cast, Extent, Programme, Setting, Suite, Wishes};
use crate::catalogue::Ability;
use crate::driver::Driver;
use crate::load::Length;
use crate::result::Parameter;
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: crate::agreement::SUITE,
    about: "Our load generator against wrk on the same servers, in interleaved pairs",
    as_published: false,
    lay_out,
};

fn lay_out(wishes: &Wishes) -> Programme {
    let mut programme = Programme::new("Our load generator and wrk, in interleaved pairs", wishes);
    programme.rounds = wishes.rounds.unwrap_or(match wishes.extent {
        Extent::Full => FULL_PAIRS,
        Extent::Quick | Extent::Usual => PAIRS,
    });
    let protocols: &[bool] = if wishes.quick() {
        &[true]
    } else {
        &[true, false]
    };
    programme.acts = protocols.iter().map(|&tls| act(wishes, tls)).collect();
    programme.notes.push(
        "Each pair is measured on one start of the server, and every second pair begins with wrk. wrk \
         opens its connections within the measured time, our generator before. The number of \
         connections is small for that reason."
            .to_owned(),
    );
    programme
}

fn act(wishes: &Wishes, tls: bool) -> Act {
    let protocol = if tls { Ability::Https } else { Ability::Http };
    Act {
        setting: Setting::Single {
            tls,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        // Several servers, since a client may suit one server better than another.
        cast: Cast::able(&[protocol, Ability::KeepAlive], Site::JOURNAL_BYTES)
            .usually(&["nginx", "apache", "lighttpd"]),
        cases: [Driver::Embedded, Driver::Wrk]
            .map(|driver| case(wishes, tls, driver))
            .into(),
        order: Order::Alternating,
    }
}

fn case(wishes: &Wishes, tls: bool, driver: Driver) -> Case {
    let path = Site::path_of(Site::JOURNAL_BYTES);
    let mut plan = wishes.plan(&path, CONNECTIONS);
    if tls {
        plan = wishes.kept_alive_over_tls(plan);
    }
    if wishes.seconds.is_none() {
        plan.length = Length::Seconds(if wishes.quick() {
            QUICK_SECONDS
        } else {
            SECONDS
        });
    }
    // wrk accepts only whole seconds.
    if let Length::Seconds(seconds) = plan.length {
        plan.length = Length::Seconds(seconds.ceil());
    }
    let (id, protocol) = if tls {
        ("tls", "TLS")
    } else {
        ("plain", "plain")
    };
    let title = format!("{protocol}, {CONNECTIONS} connections, asked by {driver}");
    let case = Case::new(format!("{id}-{driver}"), title, plan)
        .of_size(Site::JOURNAL_BYTES)
        .with("driver", Parameter::Word(driver.name().to_owned()));
    Case {
        driver: Some(driver),
        ..case
    }
}

/// wrk opens its connections within the measured time: 4 s keep the share of the opening small.
const SECONDS: f64 = 4.0;
const QUICK_SECONDS: f64 = 2.0;
const CONNECTIONS: usize = 50;
/// Pairs of rounds: seven reach a confidence of 98.4 %, where six would reach 96.9 %.
const PAIRS: u32 = 7;
const FULL_PAIRS: u32 = 11;
