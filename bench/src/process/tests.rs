//! Tests with real processes: shells that fork, print, ignore signals and die.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;

use super::*;

struct Bench {
    folder: tempfile::TempDir,
    tree: Tree,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        Bench {
            folder,
            tree: Tree::new("test", None).expect("a tree without share"),
        }
    }

    /// Creates a tree without a control group, as on a system without permission to create groups.
    fn without_group() -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = Inner {
            group: Group::default(),
            state: Mutex::default(),
        };
        Bench {
            folder,
            tree: Tree(Arc::new(inner)),
        }
    }

    fn run(&self, script: &str) {
        self.run_on(script, Vec::new());
    }

    fn run_on(&self, script: &str, cpus: Vec<usize>) {
        let launch = Launch {
            name: "script".into(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: BTreeMap::from([("WORD".into(), "kept".into())]),
            folder: self.folder.path().into(),
            log: self.folder.path().join("log"),
            cpus,
        };
        self.tree.spawn(&launch).expect("a shell");
    }

    /// Returns the output of the processes, once the output has `lines` lines.
    fn printed(&self, lines: usize) -> String {
        loop {
            let mut text = String::new();
            let log = File::open(self.folder.path().join("log"));
            log.and_then(|mut log| log.read_to_string(&mut text))
                .expect("a log");
            // A shell writes the parts of a line one after the other.
            if text.matches('\n').count() >= lines {
                return text;
            }
            std::thread::sleep(POLL);
        }
    }

    fn await_end(&self) -> ExitStatus {
        loop {
            match self.tree.ended() {
                Some((name, status)) => {
                    assert_eq!(name, "script");
                    return status;
                }
                None => std::thread::sleep(POLL),
            }
        }
    }
}

fn lives(pid: u32) -> bool {
    !Table::read().living(vec![pid]).is_empty()
}

fn both() -> [Bench; 2] {
    [Bench::new(), Bench::without_group()]
}

#[test]
fn a_process_gets_its_environment_folder_log_and_processors() {
    for bench in both() {
        let cpu = *cpus().last().expect("a processor");
        bench.run_on(
            "echo $WORD; pwd -P; grep Cpus_allowed_list /proc/self/status >&2",
            vec![cpu],
        );
        let folder = bench.folder.path().canonicalize().expect("a path");
        let expected = format!("kept\n{}\nCpus_allowed_list:\t{cpu}\n", folder.display());
        assert_eq!(bench.printed(3), expected);
        assert!(bench.await_end().success());
    }
    assert!(!cpus().is_empty());
}

#[test]
fn the_exit_status_of_a_process_is_reported() {
    for bench in both() {
        assert_eq!(bench.tree.ended(), None);
        bench.run("kill -KILL $$");
        assert_eq!(bench.await_end().signal(), Some(9));
        assert!(bench.tree.pids().is_empty());
    }
}

#[test]
fn ending_a_tree_kills_processes_that_ignore_the_signal() {
    for bench in both() {
        // The child ignores SIGTERM, has a process group of its own, and its parent exits.
        bench.run("setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait");
        let pid: u32 = bench.printed(1).trim().parse().expect("a process id");
        assert!(bench.tree.pids().contains(&pid));
        bench.tree.end(Duration::from_millis(50));
        assert!(bench.tree.pids().is_empty());
        assert!(!lives(pid));
    }
}

#[test]
fn dropping_a_tree_kills_it() {
    for bench in both() {
        bench.run("echo $$; sleep 1000 & wait");
        let pid: u32 = bench.printed(1).trim().parse().expect("a process id");
        let (pids, folders) = (bench.tree.pids(), bench.tree.0.group.folders().to_vec());
        assert!(pids.contains(&pid));
        drop(bench);
        assert!(!pids.into_iter().any(lives));
        assert!(
            !folders.iter().any(|folder| folder.exists()),
            "a control group is left"
        );
    }
}

#[test]
fn the_guard_kills_the_tree_after_the_kit_has_ended() {
    for bench in both() {
        bench.run("echo $$; sleep 1000 & wait");
        bench.printed(1);
        let pids = bench.tree.pids();
        // The pipe is closed as if the kit had been killed.
        let guard = bench.tree.state().guard.take().expect("a guard");
        guard.abandon();
        // A killed process takes a moment to end. Without the guard the loop would never end.
        while pids.iter().any(|pid| lives(*pid)) {
            std::thread::sleep(POLL);
        }
    }
}

#[test]
fn cpu_time_of_ended_children_counts() {
    for bench in both() {
        // The child uses 0.25 s of CPU time, enough for the resolution of clock ticks.
        let busy = "sh -c 'while :; do set -- $(cut -d\" \" -f14,15 /proc/$$/stat); \
                    [ $(($1 + $2)) -lt 25 ] || exit 0; done'; echo done; sleep 1000";
        let measuring = Measuring::begin(&bench.tree, Duration::from_millis(20), 2);
        bench.run(busy);
        bench.printed(1);
        let used = measuring.finish();
        assert!(used.cpu_seconds() >= 0.24, "{used:?}");
        assert!(used.peak_pss_bytes > 50_000, "{used:?}");
        assert_eq!(used.cpus, 2);
    }
}

#[test]
fn a_tree_reports_its_counting_method() {
    let without = Bench::without_group().tree;
    assert_eq!(
        without.counting(),
        Counting::Processes { why: String::new() }
    );
    match Bench::new().tree.counting() {
        Counting::Group => {}
        Counting::Processes { why } => assert!(!why.is_empty()),
    }
}

#[test]
fn a_cpu_share_is_set_or_the_reason_is_reported() {
    let tree = match Tree::new("share", Some(0.05)) {
        Ok(tree) => tree,
        Err(error) => {
            assert!(error.to_string().contains(": "), "{error}");
            return;
        }
    };
    let folder = &tree.0.group.folders()[0];
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    let limit = read("cpu.max")
        .or_else(|| read("cpu.cfs_quota_us"))
        .expect("a limit");
    assert!(limit.starts_with("5000"), "{limit}");
}

#[test]
fn a_missing_program_is_named_in_the_log() {
    let bench = Bench::new();
    let launch = Launch {
        name: "missing".into(),
        program: "/no/such/program".into(),
        folder: bench.folder.path().into(),
        log: bench.folder.path().join("log"),
        ..Launch::default()
    };
    bench.tree.spawn(&launch).expect("the shell at least");
    assert!(bench.printed(1).contains("/no/such/program"));
}
