//! Whether our generator sees what wrk sees: the same server and settings, asked by the one and by
//! the other in turn on one start, so that a pair has the same server, memory and moment.
//!
//! It tells something only where the server is the limit: then the client can't change what it does,
//! and a difference is an error of measuring. The client's own share of its processor says whether.

use super::{Act, Case, Cast, Programme, Setting, Suite, Wishes};
use crate::catalogue::Ability;
use crate::driver::Driver;
use crate::load::Length;
use crate::result::Parameter;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: "agreement",
    about: "Our load generator against wrk on the same servers, in interleaved pairs",
    as_published: false,
    lay_out,
};

fn lay_out(wishes: &Wishes) -> Programme {
    let mut programme = Programme::new("Our load generator and wrk, in interleaved pairs", wishes);
    programme.rounds = wishes
        .rounds
        .unwrap_or(if wishes.quick { QUICK_PAIRS } else { PAIRS });
    programme.acts = vec![Act {
        setting: Setting::Single {
            tls: true,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        // Several, since a client may suit one server's ways and not another's.
        cast: Cast::able(&[Ability::Https, Ability::KeepAlive], Site::JOURNAL_BYTES)
            .usually(&["nginx", "apache", "lighttpd", "caddy"]),
        cases: [Driver::Embedded, Driver::Wrk]
            .map(|driver| case(wishes, driver))
            .into(),
        until_failures: false,
    }];
    programme
}

fn case(wishes: &Wishes, driver: Driver) -> Case {
    let path = Site::path_of(Site::JOURNAL_BYTES);
    let mut plan = wishes.kept_alive_over_tls(wishes.plan(&path, CONNECTIONS));
    if wishes.seconds.is_none() {
        wishes.time(&mut plan, SECONDS);
        plan.length = Length::Seconds(SECONDS);
    }
    // wrk knows whole seconds only.
    if let Length::Seconds(seconds) = plan.length {
        plan.length = Length::Seconds(seconds.ceil());
    }
    let title = format!("asked by {driver}, TLS, {CONNECTIONS} connections");
    let case = Case::new(driver.name(), title, plan)
        .of_size(Site::JOURNAL_BYTES)
        .with("driver", Parameter::Word(driver.name().to_owned()));
    Case {
        driver: Some(driver),
        ..case
    }
}

/// wrk opens its connections within its window: that must be a small part of it.
const SECONDS: f64 = 3.0;
const CONNECTIONS: usize = 50;
const PAIRS: u32 = 9;
/// The fewest of which six may say the same and one another.
const QUICK_PAIRS: u32 = 7;
