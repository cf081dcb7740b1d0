//! Suite of source document 003: sizes × connections × client threads, as run by Spare Cores on three
//! thousand machines. The suite adds TLS, several rounds, percentiles and disjoint processors.

use super::options::{Extent, FEW_ROUNDS, Options, usual_tls};
use super::plan::{Case, Group, Plan, Selection, Setting, Suite};
use crate::catalogue::Ability;
use crate::load::{Length, Workload};
use crate::result::Parameter;
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: crate::extrapolate::SUITE,
    about: "Sizes from 1 to 512 KB × connections × threads for each processor, plain and TLS",
    as_published: true,
    lay_out,
};

const KILOBYTES: [u64; 5] = [1, 16, 64, 256, 512];
const THREADS: [usize; 3] = [1, 2, 4];
const CONNECTIONS: [usize; 6] = [1, 2, 4, 8, 16, 32];

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new(
        "Sizes × connections × threads for each processor, extrapolated",
        options,
    );
    plan.rounds = options.rounds(if options.as_published { 1 } else { FEW_ROUNDS });
    let protocols: &[bool] = if options.as_published {
        &[false]
    } else {
        &[false, true]
    };
    plan.groups = protocols.iter().map(|&tls| group(options, tls)).collect();
    plan.notes.push(
        "Extrapolated: requests/s ÷ the server's CPU time × the CPU time of server and client. The \
         formula assigns the client's time to the server at equal efficiency, and is too low where \
         the processors were idle."
            .to_owned(),
    );
    plan.notes.push(
        "All cells of a round are measured on one start of a server, so the memory of a cell \
         includes the effect of earlier cells."
            .to_owned(),
    );
    if options.as_published {
        plan.pinned = false;
        plan.notes.push(
            "As published: 10 s, one round, no warm-up, plain HTTP; server and client share all \
             processors."
                .to_owned(),
        );
    }
    plan
}

fn group(options: &Options, tls: bool) -> Group {
    let mut cases = Vec::new();
    for (kilobytes, threads, connections) in cells(options.extent) {
        cases.push(case(options, tls, kilobytes, threads, connections));
    }
    let protocol = if tls { Ability::Https } else { Ability::Http };
    let largest = KILOBYTES[KILOBYTES.len() - 1] * 1024;
    Group {
        setting: Setting::Single {
            tls,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        // The document's server keeps its files in memory; the other contenders are widely used servers.
        selection: Selection::able(&[protocol, Ability::KeepAlive], largest)
            .usually(&["anthill", "nginx", "lighttpd", "actix", "binserve"]),
        cases,
        order: Order::Listed,
    }
}

/// Returns size in KB, threads and connections per processor of each cell: 69 in the full extent, without
/// the combinations that the document leaves out.
///
/// The usual extent has only the cells with one thread: the document keeps the best of several thread
/// counts, and a client on processors of its own gains nothing from more threads.
fn cells(extent: Extent) -> Vec<(u64, usize, usize)> {
    if extent == Extent::Quick {
        let sizes = [1, 64, 512];
        return sizes
            .into_iter()
            .flat_map(|size| [(size, 1, 1), (size, 1, 16)])
            .collect();
    }
    let mut cells = Vec::new();
    for kilobytes in KILOBYTES {
        for threads in THREADS {
            if threads > 1 && extent == Extent::Usual {
                continue;
            }
            for connections in CONNECTIONS {
                let too_many = connections > 16 && kilobytes >= 256;
                if !too_many && connections >= threads {
                    cells.push((kilobytes, threads, connections));
                }
            }
        }
    }
    cells
}

fn case(options: &Options, tls: bool, kilobytes: u64, threads: usize, connections: usize) -> Case {
    // The document counts the vCPUs of the whole machine; here the server has a part of the machine.
    let cpus = if options.as_published {
        options.server_cpus + options.client_cpus
    } else {
        options.server_cpus
    };
    let bytes = kilobytes * 1024;
    let mut workload = Workload {
        tls: tls.then(usual_tls),
        threads: threads * cpus,
        ..options.workload(&Site::path_of(bytes), connections * cpus)
    };
    if options.as_published {
        workload.length = Length::Seconds(options.seconds.unwrap_or(PUBLISHED_SECONDS));
        workload.warm_up_seconds = options.warm_up_seconds.unwrap_or(0.0);
    } else {
        options.time(&mut workload, SECONDS, FULL_SECONDS);
    }
    let protocol = if tls { "tls" } else { "plain" };
    let (threads, connections) = (workload.threads, workload.connections);
    let many = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    let title = format!(
        "{}, {kilobytes} KB, {}, {}",
        if tls { "TLS" } else { "plain" },
        many(connections, "connection"),
        many(threads, "thread")
    );
    Case::new(
        format!("{protocol}-{kilobytes}k-t{threads}-c{connections}"),
        title,
        workload,
    )
    .of_size(bytes)
    .with("threads", Parameter::Count(threads as u64))
    .with(
        "connections_per_cpu",
        Parameter::Count((connections / cpus.max(1)) as u64),
    )
}

/// Shorter rounds than in other suites, since the matrix has 56 or 138 cells.
const SECONDS: f64 = 1.0;
const FULL_SECONDS: f64 = 2.0;
const PUBLISHED_SECONDS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_cells() {
        assert_eq!(cells(Extent::Usual).len(), 28);
        let cells = cells(Extent::Full);
        assert_eq!(cells.len(), 69);
        let large = cells.iter().filter(|(kilobytes, _, _)| *kilobytes >= 256);
        assert_eq!(large.count(), 24);
    }
}
