//! Division of the processors between server and client. Both sides are disjoint, so that neither takes CPU
//! time from the other, and the hardware threads of a core, which share the core, are on the same side.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::process;

/// Processor numbers of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Processors of the server.
    pub server: Vec<usize>,
    /// Processors of the client.
    pub client: Vec<usize>,
}

impl Cores {
    /// Divides the processors available to the process into halves. The server gets the odd core.
    pub(crate) fn of_this_machine() -> Cores {
        let allowed = process::cpus();
        let cores = cores(&allowed, Path::new("/sys/devices/system/cpu"));
        Cores::halves(&cores)
    }

    fn halves(cores: &[BTreeSet<usize>]) -> Cores {
        let flat = |cores: &[BTreeSet<usize>]| cores.iter().flatten().copied().collect();
        match cores.len() {
            // A single core is divided into its hardware threads. A single hardware thread is shared by
            // both sides.
            0 | 1 => {
                let threads: Vec<usize> = flat(cores);
                match threads.split_first() {
                    Some((first, rest)) if !rest.is_empty() => Cores {
                        server: vec![*first],
                        client: rest.to_vec(),
                    },
                    _ => Cores {
                        server: threads.clone(),
                        client: threads,
                    },
                }
            }
            count => {
                let (server, client) = cores.split_at(count.div_ceil(2));
                Cores {
                    server: flat(server),
                    client: flat(client),
                }
            }
        }
    }

    /// Returns true if no processor is on both sides.
    pub(crate) fn disjoint(&self) -> bool {
        !self.server.iter().any(|cpu| self.client.contains(cpu))
    }
}

/// Parses a list of processors as written by the kernel and taskset: `0-3,6`. Returns `None` for other
/// text.
pub(crate) fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut list = BTreeSet::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to || to >= CPUS_MAX {
            return None;
        }
        list.extend(from..=to);
    }
    Some(list.into_iter().collect())
}

/// Groups hardware threads by core.
fn cores(allowed: &[usize], folder: &Path) -> Vec<BTreeSet<usize>> {
    let mut cores: Vec<BTreeSet<usize>> = Vec::new();
    for &cpu in allowed {
        if cores.iter().any(|core| core.contains(&cpu)) {
            continue;
        }
        let file = folder.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        let siblings = fs::read_to_string(file)
            .ok()
            .and_then(|text| parse_list(&text));
        let mut core: BTreeSet<usize> = siblings.unwrap_or_default().into_iter().collect();
        core.retain(|sibling| allowed.contains(sibling));
        core.insert(cpu);
        cores.push(core);
    }
    cores
}

/// Number of processors in the kernel's CPU sets.
const CPUS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> BTreeSet<usize> {
        cpus.iter().copied().collect()
    }

    #[test]
    fn processor_lists_are_parsed() {
        assert_eq!(parse_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("3"), Some(vec![3]));
        assert_eq!(parse_list("3-1"), None);
        assert_eq!(parse_list(""), None);
        assert_eq!(parse_list("0-99999999"), None);
    }

    #[test]
    fn threads_of_a_core_stay_together() {
        let two_by_two = [set(&[0, 2]), set(&[1, 3])];
        let halves = Cores::halves(&two_by_two);
        assert_eq!((halves.server, halves.client), (vec![0, 2], vec![1, 3]));
        let three = [set(&[0]), set(&[1]), set(&[2])];
        let halves = Cores::halves(&three);
        assert_eq!((halves.server, halves.client), (vec![0, 1], vec![2]));
    }

    #[test]
    fn a_single_processor_is_shared() {
        let alone = Cores::halves(&[set(&[0])]);
        assert!(!alone.disjoint());
        let threads = Cores::halves(&[set(&[0, 1])]);
        assert!(threads.disjoint());
    }

    #[test]
    fn hardware_threads_are_grouped_by_core() {
        let folder = tempfile::tempdir().expect("a folder");
        for (cpu, siblings) in [(0, "0,2"), (1, "1"), (2, "0,2")] {
            let topology = folder.path().join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&topology).expect("a folder");
            fs::write(topology.join("thread_siblings_list"), siblings).expect("a file");
        }
        let found = cores(&[0, 1, 2, 7], folder.path());
        assert_eq!(found, [set(&[0, 2]), set(&[1]), set(&[7])]);
    }
}
