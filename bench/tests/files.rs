//! Tests of the files that the real program reads and writes: user files are never lost, and reports show
//! known values only.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use anthill_bench::result::Run;

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    /// Returns a folder with copies of test files; each pair is the path below `tests` and the name of the
    /// copy.
    fn with(files: &[(&str, &str)]) -> Home {
        let folder = tempfile::tempdir().expect("a folder");
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        for (there, here) in files {
            fs::copy(tests.join(there), folder.path().join(here)).expect("a sample");
        }
        Home { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn bench(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_anthill-bench"))
            .args(line.split_whitespace())
            .current_dir(&self.folder)
            .output()
            .expect("the program")
    }

    /// Returns the standard output of a command that must succeed.
    fn prints(&self, line: &str) -> String {
        let output = self.bench(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the standard error of a command that must fail with status 2.
    fn refuses(&self, line: &str) -> String {
        let output = self.bench(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        stderr(&output)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_import_never_replaces_a_file_unasked() {
    let home = Home::with(&[
        ("drivers/siege.txt", "siege.json"),
        ("drivers/wrk.txt", "hello.txt"),
    ]);
    let siege = home.read("siege.json");
    home.prints("import siege.json");
    assert_eq!(home.read("siege.json"), siege, "the user's file");
    assert!(Run::read(&home.path("siege-2.json")).is_ok());
    home.prints("import siege.json");
    assert!(Run::read(&home.path("siege-3.json")).is_ok());
    fs::write(home.path("hello.json"), "a run of an hour").expect("a file");
    home.prints("import hello.txt");
    assert_eq!(home.read("hello.json"), "a run of an hour");
    assert!(Run::read(&home.path("hello-2.json")).is_ok());
    // An existing file given by `-o` is replaced, as with `run`, but never an input.
    home.prints("import hello.txt -o hello.json");
    assert!(Run::read(&home.path("hello.json")).is_ok());
    let refused = home.refuses("import siege.json -o ./siege.json");
    assert!(
        refused.contains("`--output ./siege.json` would replace siege.json"),
        "{refused}"
    );
    assert_eq!(home.read("siege.json"), siege);
}

/// Outputs of one generator become one table and one chart with the known values only, whether imported
/// together or file by file.
#[test]
fn imports_of_one_generator_are_one_table() {
    let home = Home::with(&[
        ("drivers/wrk-without-latency.txt", "nginx.txt"),
        ("drivers/wrk-without-latency.txt", "go.txt"),
        ("drivers/siege-text-delay.txt", "siege.txt"),
    ]);
    home.prints("import nginx.txt go.txt siege.txt");
    let together = home.prints("report imported.json");
    home.prints("import nginx.txt");
    home.prints("import go.txt");
    let apart = home.prints("report nginx.json go.json");
    for report in [&together, &apart] {
        let line = |begin: &str| {
            let mut lines = report.lines().filter(|line| line.starts_with(begin));
            lines.next().unwrap_or_else(|| panic!("{begin}: {report}"))
        };
        assert_eq!(report.matches("requests/s (more is better)").count(), 0);
        assert_eq!(
            report.matches("\n### wrk\n").count() + report.matches("\n## wrk\n").count(),
            1,
            "{report}"
        );
        assert!(
            line("| server").contains("| connections | threads |"),
            "{report}"
        );
        assert!(
            line("nginx:").contains('■') && line("   go:").contains('■'),
            "{report}"
        );
        assert!(line("| nginx").contains("470 µs"), "the mean: {report}");
        for nonsense in [
            "0.00 + 0.00",
            "wrk:\n",
            "()",
            "1 threads",
            "\\_",
            "measured with",
            "202",
        ] {
            assert!(!report.contains(nonsense), "{nonsense}: {report}");
        }
    }
    assert!(together.contains("| users |"), "{together}");
    assert!(together.contains("availability"), "{together}");
}

#[test]
fn a_truncated_output_is_rejected_by_name() {
    let home = Home::with(&[("drivers/wrk-without-latency.txt", "wrk.txt")]);
    let whole = home.read("wrk.txt");
    let end = whole.find("Requests/sec").expect("a line");
    fs::write(home.path("wrk.txt"), &whole[..end]).expect("a file");
    let refused = home.refuses("import wrk.txt");
    assert!(
        refused.contains("wrk.txt, line 1: the output of wrk: no `Transfer/sec:` in the output"),
        "{refused}"
    );
    assert!(!home.path("wrk.json").exists());
}

#[test]
fn the_file_name_decides_the_report_format() {
    let home = Home::with(&[("samples/sample-hello.json", "hello.json")]);
    for line in [
        "report hello.json -o x.pdf",
        "compare hello.json hello.json -o x.pdf",
    ] {
        let refused = home.refuses(line);
        assert!(
            refused.contains("x.pdf: unknown report format `.pdf`"),
            "{refused}"
        );
        assert!(!home.path("x.pdf").exists());
    }
    home.prints("report hello.json -o x.html");
    assert!(home.read("x.html").starts_with("<!doctype html>"));
    home.prints("report hello.json -o x.md");
    assert!(home.read("x.md").starts_with("# "));
    assert!(!home.read("x.md").contains("CPU time is counted in"));
}

#[test]
fn plain_and_tls_rows_go_into_separate_csv_files() {
    let home = Home::with(&[("samples/sample-matrix.json", "matrix.json")]);
    let mut run = Run::read(&home.path("matrix.json")).expect("a sample");
    run.cells.retain(|cell| cell.contender == "lighttpd");
    let mut over_tls = 0;
    for (nth, scenario) in run.scenarios.iter_mut().enumerate() {
        let tls = nth % 2 == 1;
        over_tls += usize::from(tls);
        let flag = anthill_bench::result::Parameter::Flag(tls);
        scenario.parameters.insert("tls".to_owned(), flag);
    }
    run.write(&home.path("matrix.json")).expect("a file");
    home.prints("report matrix.json -o spare.csv");
    let rows = |name: &str| {
        let text = home.read(name);
        let rows = text.lines().skip(1).map(str::to_owned);
        rows.collect::<Vec<String>>()
    };
    let (plain, tls) = (rows("spare.csv"), rows("spare.tls.csv"));
    assert_eq!(tls.len(), over_tls);
    assert_eq!(plain.len(), run.scenarios.len() - over_tls);
    let hello = Home::with(&[("drivers/wrk.txt", "wrk.txt")]);
    hello.prints("import wrk.txt");
    let refused = hello.refuses("report wrk.json -o wrk.csv");
    assert!(
        refused.contains("`import` cannot be written as CSV"),
        "{refused}"
    );
}

/// Starts a run of 60 s with its own folder for temporary files, and waits for its first line.
fn begun(home: &Home, temporary: &Path) -> (Child, BufReader<ChildStderr>) {
    fs::create_dir_all(temporary).expect("a folder");
    let line = "run hello --with python --rounds 1 --seconds 60 --warm-up 0";
    let mut run = Command::new(env!("CARGO_BIN_EXE_anthill-bench"))
        .args(line.split_whitespace())
        .current_dir(&home.folder)
        .env("TMPDIR", temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut messages = BufReader::new(run.stderr.take().expect("standard error"));
    // The line `Hello: …: about 2 min` follows the creation of the work folder.
    let mut words = String::new();
    messages.read_line(&mut words).expect("a line");
    assert!(words.contains("about"), "{words}");
    assert_eq!(work_folders(temporary), 1);
    (run, messages)
}

/// Counts the work folders. Other temporary folders exist briefly while programs print their versions.
fn work_folders(temporary: &Path) -> usize {
    let files = fs::read_dir(temporary).expect("a folder").flatten();
    let names = files.map(|file| file.file_name());
    let is_one = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("anthill-bench-");
    names.filter(is_one).count()
}

#[test]
fn a_run_removes_the_work_folder_of_a_killed_run() {
    let home = Home::with(&[]);
    let temporary = home.path("temporary");
    let (mut run, _messages) = begun(&home, &temporary);
    run.kill().expect("a running process");
    run.wait().expect("an exit status");
    assert_eq!(
        work_folders(&temporary),
        1,
        "a killed run cannot remove its folder"
    );
    let next = "run hello --with python --rounds 1 --seconds 1 --warm-up 0";
    let output = Command::new(env!("CARGO_BIN_EXE_anthill-bench"))
        .args(next.split_whitespace())
        .current_dir(&home.folder)
        .env("TMPDIR", &temporary)
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(work_folders(&temporary), 0);
}

#[test]
fn a_second_interrupt_exits_at_once_and_removes_the_work_folder() {
    let home = Home::with(&[]);
    let temporary = home.path("temporary");
    let (mut run, mut messages) = begun(&home, &temporary);
    let interrupt = || {
        let id = run.id().to_string();
        let kill = Command::new("kill").args(["-INT", &id]).status();
        kill.expect("kill")
    };
    assert!(interrupt().success());
    let mut words = String::new();
    while !words.contains("interrupt again to exit at once") {
        let read = messages.read_line(&mut words).expect("a line");
        assert!(read > 0, "{words}");
    }
    // The run may have ended after the first signal.
    interrupt();
    assert_eq!(run.wait().expect("an exit status").code(), Some(130));
    assert_eq!(work_folders(&temporary), 0);
}
