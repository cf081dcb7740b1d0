//! Agreement of the kit's load generator with wrk: both load the same server with the same settings in turn
//! on one start, so that the rounds of a pair share server, memory and time.
//!
//! A pair is evidence only where the server is the limit: there the client cannot change the result, and a
//! difference is a measurement error. The client's use of its processor shows which side is the limit.

use super::options::{Extent, Options};
use super::plan::{Case, Group, Plan, Selection, Setting, Suite};
use crate::catalogue::Ability;
use crate::driver::Driver;
use crate::load::Length;
use crate::result::Parameter;
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: crate::agreement::SUITE,
    about: "The built-in load generator beside wrk on the same servers, in interleaved pairs",
    as_published: false,
    lay_out,
};

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new(
        "The built-in load generator and wrk, in interleaved pairs",
        options,
    );
    plan.rounds = options.rounds.unwrap_or(match options.extent {
        Extent::Full => FULL_PAIRS,
        Extent::Quick | Extent::Usual => PAIRS,
    });
    let protocols: &[bool] = if options.quick() {
        &[true]
    } else {
        &[true, false]
    };
    plan.groups = protocols.iter().map(|&tls| group(options, tls)).collect();
    plan.notes.push(
        "Each pair is measured on one start of the server, and every second pair begins with wrk. wrk \
         opens its connections within the measured time, our generator before. The number of \
         connections is small for that reason."
            .to_owned(),
    );
    plan
}

fn group(options: &Options, tls: bool) -> Group {
    let protocol = if tls { Ability::Https } else { Ability::Http };
    Group {
        setting: Setting::Single {
            tls,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        // Several servers, since a client may suit one server better than another.
        selection: Selection::able(&[protocol, Ability::KeepAlive], Site::JOURNAL_BYTES)
            .usually(&["nginx", "apache", "lighttpd"]),
        cases: [Driver::Embedded, Driver::Wrk]
            .map(|driver| case(options, tls, driver))
            .into(),
        order: Order::Alternating,
    }
}

fn case(options: &Options, tls: bool, driver: Driver) -> Case {
    let path = Site::path_of(Site::JOURNAL_BYTES);
    let mut workload = options.workload(&path, CONNECTIONS);
    if tls {
        workload = options.kept_alive_over_tls(workload);
    }
    if options.seconds.is_none() {
        workload.length = Length::Seconds(if options.quick() {
            QUICK_SECONDS
        } else {
            SECONDS
        });
    }
    // wrk accepts only whole seconds.
    if let Length::Seconds(seconds) = workload.length {
        workload.length = Length::Seconds(seconds.ceil());
    }
    let (id, protocol) = if tls {
        ("tls", "TLS")
    } else {
        ("plain", "plain")
    };
    let title = format!("{protocol}, {CONNECTIONS} connections, asked by {driver}");
    let case = Case::new(format!("{id}-{driver}"), title, workload)
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
