//! Suite of source document 004, Apache against nginx: a static page with 50 to 250 users, a simple script
//! with 10 to 50, and a complex script with 5 to 25. The complex script runs without a page cache, with the
//! cache of the document's content management system, and with the server's own. The scripts of document
//! 002 follow.

use super::options::{Extent, Options};
use super::plan::{Case, Group, Plan, Selection, Setting, Suite};
use crate::catalogue::Ability;
use crate::load::Workload;
use crate::result::Parameter;
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: "dynamic",
    about: "Apache, nginx and further servers: a static page, a simple and a complex script",
    as_published: false,
    lay_out,
};

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("Static pages and scripts over rising users", options);
    let rows = [
        Row::new(
            "static",
            "static page",
            &Site::path_of(Site::JOURNAL_BYTES),
            50,
        ),
        Row::new("simple", "simple script", Site::SIMPLE_SCRIPT, 10),
        Row::new("complex", "complex script", Site::COMPLEX_SCRIPT, 5),
        Row::new(
            "cached",
            "complex page kept as a file, as the CMS did",
            Site::CACHED_PAGE,
            5,
        ),
        Row::new(
            "page-cache",
            "complex script, the server's page cache",
            Site::KEPT_SCRIPT,
            5,
        ),
    ];
    plan.groups = rows.iter().map(|row| row.group(options)).collect();
    if !options.quick() {
        plan.groups.push(scripts(options));
    }
    plan.notes.push(
        "No keep-alive, as with ab without -k. The document's content management system stored the \
         page of its script as a file, so its row measures a static file. A server's own page cache \
         stores the script's response for a minute; of Debian's servers nginx and Apache have one."
            .to_owned(),
    );
    plan
}

struct Row {
    id: &'static str,
    title: &'static str,
    path: String,
    /// Smallest number of users; the largest is five times as many.
    users: usize,
}

impl Row {
    fn new(id: &'static str, title: &'static str, path: &str, users: usize) -> Row {
        Row {
            id,
            title,
            path: path.to_owned(),
            users,
        }
    }

    fn group(&self, options: &Options) -> Group {
        let steps: &[usize] = match options.extent {
            Extent::Quick => &[1, 5],
            Extent::Usual => &[1, 3, 5],
            Extent::Full => &[1, 2, 3, 4, 5],
        };
        let kept = self.path == Site::KEPT_SCRIPT;
        let cgi = kept || self.path.starts_with("/cgi-bin/");
        let case = |step: &usize| {
            let users = self.users * step;
            let workload = Workload {
                keep_alive: false,
                ..options.workload(&self.path, users)
            };
            let title = format!("{}, {users} users", self.title);
            let case = Case::new(format!("{}-{users}", self.id), title, workload);
            let case = case
                .of_users(users)
                .with("page", Parameter::Word(self.title.to_owned()));
            if self.id == "static" {
                return case.of_size(Site::JOURNAL_BYTES);
            }
            case
        };
        let ability = match (cgi, kept) {
            (_, true) => Ability::PageCache,
            (true, _) => Ability::Cgi,
            _ => Ability::Files,
        };
        let needs = [Ability::Http, ability];
        Group {
            setting: Setting::Single {
                tls: false,
                keep_alive: false,
                published: false,
                cgi,
            },
            selection: Selection::able(&needs, 0).usually(&[
                "anthill",
                "apache",
                "nginx",
                "nginx-uwsgi",
                "lighttpd",
            ]),
            cases: steps.iter().map(case).collect(),
            order: Order::Listed,
        }
    }
}

/// Returns the group of document 002's scripts, which are HTTP servers themselves.
fn scripts(options: &Options) -> Group {
    let workload = Workload {
        keep_alive: false,
        ..options.workload("/hello.html", SCRIPT_CLIENTS)
    };
    let case = Case::new("scripts-10", "scripts that are servers, 10 users", workload)
        .of_users(SCRIPT_CLIENTS)
        .with("page", Parameter::Word("hello".to_owned()));
    Group {
        setting: Setting::Single {
            tls: false,
            keep_alive: false,
            published: false,
            cgi: false,
        },
        selection: Selection::able(&[Ability::Http, Ability::Hello], 0).usually(&[
            "node",
            "python",
            "perl-daemon",
            "perl-simple",
            "perl-dancer",
            "perl-mojo",
            "perl-hypnotoad",
        ]),
        cases: vec![case],
        order: Order::Listed,
    }
}

const SCRIPT_CLIENTS: usize = 10;
