//! End-to-end tests of the real program with real servers and real clients.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anthill_bench::result::{Round, Run};

/// A folder with a catalogue of misbehaving servers.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("misbehave.py");
        fs::write(&script, MISBEHAVE).expect("a script");
        let mut catalogue = String::new();
        for how in [
            "well",
            "well-again",
            "wrong-status",
            "wrong-length",
            "seldom-wrong",
            "drop",
            "cut",
            "hang",
            "die",
            "die-once",
            "never",
            "stubborn",
        ] {
            catalogue.push_str(&format!(
                "[[contender]]\nname = \"{how}\"\ntitle = \"{how}\"\n\
                 abilities = [\"http\", \"hello\"]\ninstall = {{ note = \"a test\" }}\n\
                 [[contender.program]]\nkey = \"python\"\nnames = [\"python3\"]\n\
                 [[contender.start]]\ncommand = [\"{{python}}\", \"{}\", \"{how}\", \"{{host}}\", \
                 \"{{http}}\", \"{{page}}\"]\n",
                script.display()
            ));
        }
        fs::write(folder.path().join("catalogue.toml"), catalogue).expect("a catalogue");
        Home { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anthill-bench"));
        command
            .args(line.split_whitespace())
            .current_dir(self.path());
        command
    }

    fn bench(&self, line: &str) -> Output {
        self.command(line).output().expect("the program")
    }

    /// Runs a line with `--seconds 1`, and again with longer rounds while a server answers no request within a
    /// round, or a connection times out: on a busy machine the handshakes alone may take seconds. Returns the
    /// last line, and its output.
    fn bench_patiently(&self, line: &str) -> (String, Output) {
        let mut last = None;
        for seconds in ["--seconds 1", "--seconds 5", "--seconds 25"] {
            let line = line.replace("--seconds 1", seconds);
            let output = self.bench(&line);
            let is_late = ["the server is too slow: no response in", "timed out after"]
                .iter()
                .any(|sign| stderr(&output).contains(sign));
            last = Some((line, output));
            if !is_late {
                break;
            }
        }
        last.expect("an output")
    }

    /// Runs a short `run hello` with the given contenders.
    fn hello(&self, with: &str, more: &str) -> Output {
        let seconds = if more.contains("--seconds") {
            ""
        } else {
            "--seconds 1"
        };
        // Only the hanging server gets a short timeout: the machine may delay the other servers for a
        // while.
        let timeout = if with.contains("hang") { 1 } else { 10 };
        self.bench(&format!(
            "run hello --with {with} --catalogue catalogue.toml --rounds 2 {seconds} \
             --warm-up 0 --timeout {timeout} -o hello.json {more}"
        ))
    }

    fn result(&self) -> Run {
        Run::read(&self.path().join("hello.json")).expect("a result")
    }

    /// Checks that no server process of the test remains.
    fn assert_nothing_is_left(&self) {
        let mark = self.path().join("misbehave.py").display().to_string();
        for entry in fs::read_dir("/proc").expect("processes").flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            assert!(!line.contains(&mark), "left behind: {line}");
        }
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Runs the suite with all installed contenders.
#[test]
fn hello_measures_all_installed_contenders() {
    let home = Home::new();
    let line = "run hello --quick --rounds 1 --seconds 1 --warm-up 0.1 -o hello.json";
    let (line, output) = home.bench_patiently(line);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let run = home.result();
    assert!(run.complete);
    assert_eq!(run.suite, "hello");
    assert_eq!(run.command, format!("anthill bench {line}"));
    assert!(run.machine.cpus > 0 && run.machine.memory_bytes > 0);
    assert_eq!(run.scenarios.len(), 1);
    let here = run
        .contenders
        .iter()
        .filter(|facts| facts.missing.is_none());
    let names: Vec<&str> = here.clone().map(|facts| facts.name.as_str()).collect();
    assert!(!names.is_empty(), "no contender is installed");
    for facts in here {
        assert!(
            !facts.commands.is_empty(),
            "{}: no command is recorded",
            facts.name
        );
        assert!(!facts.program.is_empty());
    }
    let measured: Vec<&str> = run
        .cells
        .iter()
        .map(|cell| cell.contender.as_str())
        .collect();
    assert_eq!(measured, names);
    for cell in &run.cells {
        assert_eq!(cell.failure, None, "{}", cell.contender);
        let round = &cell.rounds[0];
        assert!(round.requests > 0, "{}", cell.contender);
        assert_eq!(
            round.failed(),
            0,
            "{}: {:?}",
            cell.contender,
            round.failures
        );
        assert!(round.server.cpu_seconds() > 0.0, "{}", cell.contender);
        assert!(round.server.peak_pss_bytes > 0, "{}", cell.contender);
        let latency = round.latency.as_ref().expect("latencies");
        assert!(latency.percentiles_us["50"] <= latency.percentiles_us["99"]);
    }
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(names.iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn every_version_of_http_is_measured() {
    // The `anthill` binary is missing if only this package was built.
    let anthill = Path::new(env!("CARGO_BIN_EXE_anthill-bench")).with_file_name("anthill");
    if !anthill.exists() && std::env::var("CI").as_deref() != Ok("true") {
        eprintln!("not tested: no {}", anthill.display());
        return;
    }
    let home = Home::new();
    // 100 handshakes of QUIC at once may lose packets on a busy machine, and are repeated more slowly each time.
    let line = "run protocols --with anthill,caddy --rounds 1 --seconds 1 --warm-up 0.5 --timeout 60 \
                -o hello.json";
    let (_, output) = home.bench_patiently(line);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let run = home.result();
    let here: Vec<&str> = run
        .contenders
        .iter()
        .filter(|facts| facts.missing.is_none())
        .map(|facts| facts.name.as_str())
        .collect();
    assert!(here.contains(&"anthill"), "{}", stderr(&output));
    for protocol in ["h1", "h2", "h3"] {
        for name in &here {
            let cell = run.cells.iter().find(|cell| {
                cell.scenario == protocol && cell.contender == *name && cell.failure.is_none()
            });
            let cell = cell.unwrap_or_else(|| panic!("{name} by {protocol}: {}", stderr(&output)));
            let round = &cell.rounds[0];
            assert!(round.requests > 0, "{name} by {protocol}");
            assert_eq!(
                round.failed(),
                0,
                "{name} by {protocol}: {:?}",
                round.failures
            );
            // Bytes are counted on arrival, requests on completion. Requests in flight at the beginning or
            // end of the round (at most 100 connections with 10 streams) are counted only in part.
            let under_way = 1_000;
            let least = 2_500 * round.requests.saturating_sub(under_way);
            let most = 10_000 * (round.requests + under_way);
            assert!(
                (least..most).contains(&round.bytes),
                "{name} by {protocol}: {} bytes of {} requests",
                round.bytes,
                round.requests
            );
            assert!(round.server.cpu_seconds() > 0.0, "{name} by {protocol}");
        }
    }
}

#[test]
fn anthill_has_published_settings_too() {
    // The `anthill` binary is missing if only this package was built.
    let beside = Path::new(env!("CARGO_BIN_EXE_anthill-bench")).with_file_name("anthill");
    let here = beside.exists() || std::env::var_os("ANTHILL").is_some();
    if !here && std::env::var("CI").as_deref() != Ok("true") {
        eprintln!("not tested: no {}", beside.display());
        return;
    }
    let home = Home::new();
    let output =
        home.bench("run hello --as-published --with anthill,python --rounds 1 -o hello.json");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let run = home.result();
    for cell in &run.cells {
        // Exactly the number of requests in the source document.
        let round = &cell.rounds[0];
        assert_eq!(
            (round.requests, round.failed()),
            (1_000, 0),
            "{}",
            cell.contender
        );
    }
    let ours = run.contenders.iter().find(|facts| facts.name == "anthill");
    let configuration = &ours.expect("anthill").configuration["anthill.toml"];
    assert!(configuration.contains("workers = 4"), "{configuration}");
}

#[test]
fn rounds_are_interleaved_and_counted() {
    let home = Home::new();
    let output = home.hello("well,hang", "--rounds 3");
    // A hanging server does not cost the other server any round.
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let run = home.result();
    assert_eq!(run.cells[0].contender, "well");
    let numbers: Vec<u32> = run.cells[0]
        .rounds
        .iter()
        .map(|round| round.number)
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
    let text = stderr(&output);
    let order: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    assert!(order[0].contains("well · round 1 of 3"), "{text}");
    home.assert_nothing_is_left();
}

#[test]
fn a_server_with_wrong_responses_is_named() {
    let home = Home::new();
    for (how, what) in [("wrong-status", "status"), ("wrong-length", "length")] {
        let output = home.hello(how, "");
        assert_eq!(code(&output), Some(1), "{}", stderr(&output));
        let messages = stderr(&output);
        assert!(
            messages.contains(&format!("failed: {how}, hello: ")),
            "{messages}"
        );
        let run = home.result();
        assert!(!run.complete);
        let failed = |round: &Round| round.failures.contains_key(what);
        assert!(run.cells[0].rounds.iter().any(failed));
        let failure = run.cells[0].failure.as_deref().unwrap_or_default();
        assert!(failure.contains(what), "{failure}");
        home.assert_nothing_is_left();
    }
}

/// A server that is fast because it drops requests does not come first.
#[test]
fn a_server_that_fails_in_part_is_marked_and_comes_last() {
    for (how, kind) in [
        ("drop", "closed"),
        ("cut", "length"),
        ("seldom-wrong", "status"),
    ] {
        let home = Home::new();
        let output = home.hello(&format!("{how},well"), "--rounds 3 --seconds 0.8");
        assert_eq!(code(&output), Some(1), "{how}: {}", stderr(&output));
        let messages = stderr(&output);
        let failure = format!("failed: {how}, hello: the server failed in part: ");
        assert_eq!(messages.matches(&failure).count(), 1, "{messages}");
        let run = home.result();
        let cell = |name: &str| run.cells.iter().find(|cell| cell.contender == name);
        let bad = cell(how).expect("its cell");
        assert_eq!(bad.rounds.len(), 3, "the turn goes on");
        let failed = |round: &Round| round.failures.contains_key(kind);
        assert!(bad.rounds.iter().any(failed), "{how}: no {kind}");
        assert_eq!(cell("well").expect("its cell").failure, None);
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = table.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines[1].ends_with("failed"), "{table}");
        assert!(lines[2].trim_start().starts_with("well "), "{table}");
        assert!(lines[3].trim_start().starts_with(how), "{table}");
        assert!(lines[3].ends_with(" %)  failed in part"), "{table}");
        let report = home.bench("report hello.json");
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        assert!(
            report.contains(&format!("{how} (failed in part)")),
            "{report}"
        );
        assert!(report.contains("the server failed in part: "), "{report}");
        let compared = home.bench("compare hello.json hello.json");
        let compared = String::from_utf8_lossy(&compared.stdout).into_owned();
        let doubt = format!("In the first run, {how} failed in part");
        assert!(compared.contains(&doubt), "{compared}");
        // A resumed run measures the failed contender again and reports the failure again.
        let again = home.hello(&format!("{how},well"), "--rounds 3 --seconds 0.8 --resume");
        assert_eq!(code(&again), Some(1), "{how}: {}", stderr(&again));
        assert!(stderr(&again).contains(&failure), "{}", stderr(&again));
        let failure = home
            .result()
            .cells
            .into_iter()
            .find_map(|cell| cell.failure);
        assert!(failure.is_some_and(|why| why.contains("failed in part")));
        home.assert_nothing_is_left();
    }
}

#[test]
fn a_server_that_dies_once_is_restarted() {
    let home = Home::new();
    let output = home.hello("die-once", "--rounds 3");
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let run = home.result();
    let numbers: Vec<u32> = run.cells[0].rounds.iter().map(|r| r.number).collect();
    assert_eq!(numbers, [1, 2], "{}", stderr(&output));
    let failure = run.cells[0].failure.as_deref().unwrap_or_default();
    assert!(
        failure.contains("the server ended during the measurement"),
        "{failure}"
    );
    home.assert_nothing_is_left();
}

#[test]
fn a_silent_run_still_prints_the_result() {
    let home = Home::new();
    let output = home.hello("well", "--silent --rounds 1");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        table.contains("requests/s") && table.contains("well"),
        "{table}"
    );
    assert!(!table.contains("failed"), "{table}");
    assert_eq!(stderr(&output), "hello.json: 1 round\n");
}

#[test]
fn timed_out_requests_are_in_the_percentiles() {
    let home = Home::new();
    let output = home.hello("hang", "--rounds 1");
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let run = home.result();
    let round = &run.cells[0].rounds[0];
    assert!(round.failures["timeout"] > 0);
    let latency = round.latency.as_ref().expect("latencies");
    assert!(latency.max_us >= 999_000.0, "{latency:?}");
    assert!(run.notes.iter().any(|note| note.contains("timed out")));
}

#[test]
fn a_server_that_hangs_is_named() {
    let home = Home::new();
    let output = home.hello("hang", "");
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let messages = stderr(&output);
    assert!(
        messages.contains("failed: hang, hello: the server hangs: "),
        "{messages}"
    );
    home.assert_nothing_is_left();
}

#[test]
fn a_server_that_dies_is_named_with_its_last_log_line() {
    let home = Home::new();
    let output = home.hello("well,die", "");
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let messages = stderr(&output);
    assert!(
        messages.contains("failed: die, hello: the server ended during the measurement"),
        "{messages}"
    );
    assert!(messages.contains("I can't go on"), "{messages}");
    let run = home.result();
    assert_eq!(
        run.cells[0].rounds.len(),
        2,
        "the rounds of the other contender are kept"
    );
    assert!(run.cells[1].failure.is_some());
    home.assert_nothing_is_left();
}

#[test]
fn a_server_that_never_starts_is_named_and_the_run_goes_on() {
    let home = Home::new();
    let output = home.hello("never,well", "");
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let messages = stderr(&output);
    assert!(
        messages.contains("failed: never: the server does not start: "),
        "{messages}"
    );
    assert!(messages.contains("no such luck"), "{messages}");
    assert_eq!(home.result().cells[1].rounds.len(), 2);
    let alone = home.hello("never", "");
    assert_eq!(code(&alone), Some(2), "{}", stderr(&alone));
    assert!(stderr(&alone).contains("nothing could be measured"));
    // The earlier result is still in the file.
    assert_eq!(home.result().cells[1].rounds.len(), 2);
    home.assert_nothing_is_left();
}

#[test]
fn an_interruption_keeps_finished_rounds() {
    let home = Home::new();
    let mut running = home
        .command(
            "run hello --with well --catalogue catalogue.toml --rounds 1000 --seconds 1 \
             --warm-up 0 -o hello.json",
        )
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(running.stderr.take().expect("standard error")).lines();
    let second = lines.by_ref().find(|line| match line {
        Ok(line) => line.starts_with("[2/1000]"),
        Err(_) => true,
    });
    second.expect("a second round").expect("a line");
    let pid = i32::try_from(running.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a process number");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a running process");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = running.wait().expect("an exit status");
    assert_eq!(status.code(), Some(130), "{rest:?}");
    assert!(
        rest.iter()
            .any(|line| line.starts_with("stopping: the figures so far are kept"))
    );
    let run = home.result();
    assert!(!run.complete);
    assert!(run.cells[0].rounds.len() >= 2);
    assert_eq!(run.cells[0].failure, None);
    home.assert_nothing_is_left();
}

/// The server goes on after SIGTERM, and creates its folder anew after each removal, until it is killed.
#[test]
fn a_second_interrupt_leaves_no_work_folder_of_a_server_that_goes_on_writing() {
    let home = Home::new();
    let temporary = home.path().join("temporary");
    fs::create_dir(&temporary).expect("a folder");
    let mut running = home
        .command(
            "run hello --with stubborn --catalogue catalogue.toml --rounds 1000 --seconds 1 \
             --warm-up 0 -o hello.json",
        )
        .env("TMPDIR", &temporary)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(running.stderr.take().expect("standard error")).lines();
    let mut until = |begin: &str| {
        let line = lines.by_ref().find(|line| match line {
            Ok(line) => line.starts_with(begin),
            Err(_) => true,
        });
        line.expect("the line").expect("a line");
    };
    let pid = i32::try_from(running.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a process number");
    let interrupt = || {
        let interrupt = rustix::process::Signal::INT;
        rustix::process::kill_process(pid, interrupt).expect("a running process");
    };
    until("[1/1000]");
    interrupt();
    until("stopping: the figures so far are kept");
    interrupt();
    let status = running.wait().expect("an exit status");
    assert_eq!(status.code(), Some(130));
    let left = fs::read_dir(&temporary).expect("a folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    home.assert_nothing_is_left();
}

#[test]
fn a_run_is_resumed_by_the_same_command_only() {
    let home = Home::new();
    assert_eq!(code(&home.hello("well", "")), Some(0));
    let first = home.result();
    let again = home.hello("well", "--resume");
    assert_eq!(code(&again), Some(0), "{}", stderr(&again));
    assert_eq!(home.result().cells, first.cells, "nothing was missing");
    let mut cut = home.result();
    cut.complete = false;
    cut.cells[0].rounds.truncate(1);
    cut.write(&home.path().join("hello.json")).expect("a file");
    let rest = home.hello("well", "--resume");
    assert_eq!(code(&rest), Some(0), "{}", stderr(&rest));
    let resumed = home.result();
    assert_eq!(resumed.cells[0].rounds.len(), 2);
    assert_eq!(resumed.cells[0].rounds[0], first.cells[0].rounds[0]);
    assert!(resumed.complete);
    assert!(resumed.notes.iter().any(|note| note.starts_with("Resumed")));
    let other = home.hello("well", "--resume --driver ab");
    assert_eq!(code(&other), Some(2));
    assert!(stderr(&other).contains("hello.json: the run cannot be resumed: its command was"));
    home.assert_nothing_is_left();
}

/// The well-known load generators, if installed, give the same kind of round.
#[test]
fn external_load_generators_give_rounds() {
    let home = Home::new();
    for driver in ["wrk", "ab", "siege"] {
        if !installed(driver) {
            continue;
        }
        let measure = || home.hello("well", &format!("--driver {driver} --rounds 1 --seconds 3"));
        let mut output = measure();
        // siege cancels its threads at the end of the time, and now and then waits for one of them for ever.
        for _ in 0..2 {
            if driver == "siege" && stderr(&output).contains("siege: not finished after") {
                output = measure();
            }
        }
        assert_eq!(code(&output), Some(0), "{driver}: {}", stderr(&output));
        let round = &home.result().cells[0].rounds[0];
        assert_eq!(round.driver, driver);
        assert!(round.command.starts_with(driver));
        assert!(round.requests > 0 && round.seconds > 0.0, "{driver}");
        assert!(
            round.client.cpu_seconds() > 0.0 || driver == "siege",
            "{driver}"
        );
        assert!(round.server.cpu_seconds() > 0.0, "{driver}");
    }
    home.assert_nothing_is_left();
}

#[test]
fn the_load_generator_runs_alone() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer_hello(stream.expect("a connection")));
        }
    });
    let load = |more: &str| home.bench(&format!("load http://{address}/ --requests 20 {more}"));
    let output = load("--bytes 5 --json --connections 2");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let round: Round = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((round.requests, round.failed()), (20, 0));
    let output = load("--bytes 6 --rate 1000");
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        words.contains("20 by length, the first: 5 bytes"),
        "{words}"
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its number");
    let output = home.bench(&format!(
        "load http://{address}/ --requests 1 --connections 1 --timeout 0.2"
    ));
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(words.contains("longest, including timeouts"), "{words}");
    for (line, says) in [
        ("load ftp://localhost/", "neither http:// nor https://"),
        ("load http://127.0.0.1/ --http 4", "1.1, 2 or 3"),
        ("load http://127.0.0.1/ --http 3", "HTTP/3 requires TLS"),
        (
            "load http://127.0.0.1/ --seconds 1 --requests 2",
            "exclude each other",
        ),
    ] {
        let output = home.bench(line);
        assert_eq!(code(&output), Some(2), "{line}");
        assert!(
            stderr(&output).contains(says),
            "{line}: {}",
            stderr(&output)
        );
    }
}

/// Responds to requests until the client closes the connection.
fn answer_hello(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
            stream.write_all(answer).expect("an answer");
        }
    }
}

#[test]
fn bad_input_measures_nothing() {
    let home = Home::new();
    for (line, says) in [
        ("run helo", "did you mean `hello`?"),
        ("run hello --with ngnix", "did you mean nginx?"),
        (
            "run hello --with foo,nginx,bar",
            "error: no contender is called foo; `anthill bench list` names all\n\
             error: no contender is called bar",
        ),
        (
            "run page --with haproxy",
            "haproxy cannot take part in the suite: the contender cannot serve a file of",
        ),
        ("run hello --driver wrkk", "unknown driver `wrkk`"),
        (
            "run growth --driver wrk",
            "wrk can't pause between requests",
        ),
        ("run hello --machine nowhere.toml", "nowhere.toml: "),
        ("run hello --catalogue nowhere.toml", "nowhere.toml: "),
        (
            "run hello --server-cpus 1000",
            "processor 1000 does not exist",
        ),
        ("report nowhere.json", "nowhere.json: "),
        ("run page --csv page.csv", "`page` cannot be written as CSV"),
    ] {
        let output = home.bench(line);
        assert_eq!(code(&output), Some(2), "{line}");
        assert!(
            stderr(&output).contains(says),
            "{line}: {}",
            stderr(&output)
        );
    }
    let files = fs::read_dir(home.path()).expect("files").count();
    assert_eq!(files, 2, "no result is left");
}

#[test]
fn a_port_in_use_is_named() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let output = home.hello("well,well-again", &format!("--port {port}"));
    assert_eq!(code(&output), Some(2));
    let messages = stderr(&output);
    let message = format!("error: port in use: 127.0.0.1:{port}\n");
    assert!(messages.starts_with(&message), "{messages}");
    assert_eq!(messages.matches("in use").count(), 1, "{messages}");
}

#[test]
fn imported_results_are_reported() {
    let home = Home::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers/wrk.txt");
    fs::copy(sample, home.path().join("wrk.txt")).expect("a sample");
    let output = home.bench("import wrk.txt");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let run = Run::read(&home.path().join("wrk.json")).expect("a result");
    assert_eq!(run.cells[0].rounds[0].requests, 154_243);
    let report = home.bench("report wrk.json");
    assert_eq!(code(&report), Some(0), "{}", stderr(&report));
    assert!(String::from_utf8_lossy(&report.stdout).contains("127.0.0.1:28080"));
    let csv = home.bench("report wrk.json -o wrk.csv");
    assert_eq!(code(&csv), Some(2));
    assert!(stderr(&csv).contains("`import` cannot be written as CSV"));
    // Failures in imported results are shown without a verdict, since chance cannot be ruled out.
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers/ab-status.txt");
    fs::copy(sample, home.path().join("ab.txt")).expect("a sample");
    assert_eq!(code(&home.bench("import ab.txt")), Some(0));
    let failed = Run::read(&home.path().join("ab.json")).expect("a result");
    assert!(failed.cells[0].rounds[0].failed() > 1);
    let report = String::from_utf8_lossy(&home.bench("report ab.json").stdout).into_owned();
    assert!(
        report.contains("failed") && !report.contains("in part"),
        "{report}"
    );
    let whole = fs::read_to_string(home.path().join("wrk.json")).expect("a result");
    fs::write(home.path().join("cut.json"), &whole[..whole.len() / 2]).expect("a file");
    let cut = home.bench("report cut.json");
    assert_eq!(code(&cut), Some(2));
    assert!(
        stderr(&cut).contains("cut.json: the file is cut off"),
        "{}",
        stderr(&cut)
    );
}

/// Runs each suite with its smallest settings and the installed servers, then compares the result with
/// itself.
#[test]
fn every_suite_is_run_from_the_command_line() {
    let home = Home::new();
    let short = "--quick --rounds 1 --seconds 0.2 --warm-up 0 --silent";
    // The round begins with 500 handshakes.
    let longer = "--quick --rounds 1 --seconds 3 --silent";
    let suites = [
        ("journal", "nginx", ""),
        ("matrix", "nginx", ""),
        ("dynamic", "apache,nginx,nginx-uwsgi", "--seconds 1"),
        ("handshake", "nginx", ""),
        // Nodes with enough CPU time for the load, and users with pauses of up to 1 s.
        (
            "growth",
            "nginx,haproxy",
            "--node nginx --node-share 0.5 --seconds 1.5 --timeout 1",
        ),
        ("proxy", "nginx,haproxy", "--node nginx"),
        ("page", "nginx", ""),
    ];
    for (suite, with, more) in suites {
        let needs: &[&str] = match suite {
            "page" => &["nginx", "chromium"],
            "dynamic" => &["nginx", "apache2", "uwsgi-core"],
            "growth" | "proxy" => &["nginx", "haproxy"],
            _ => &["nginx"],
        };
        let missing = needs.iter().find(|program| !installed(program));
        if let Some(missing) = missing {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no {missing}");
            eprintln!("not tested: {suite}: {missing} is missing");
            continue;
        }
        let length = if suite == "journal" { longer } else { short };
        let line = format!("run {suite} --with {with} {length} {more} -o {suite}.json");
        let output = home.bench(&line);
        let messages = stderr(&output);
        // On a busy machine a part of the measurement may need more time than these short rounds.
        let is_late = |line: &str| {
            let wrong = [" connect", " closed", " protocol", " status", " length"];
            let in_part = line.contains("the server failed in part: ") && line.contains(" timeout");
            line.contains("the server is too slow")
                || line.contains("the server hangs: ")
                || (in_part && !wrong.iter().any(|kind| line.contains(kind)))
        };
        let mut failures = messages.lines().filter(|line| line.starts_with("failed: "));
        let excused = failures.all(is_late);
        assert!(
            excused && matches!(code(&output), Some(0 | 1)),
            "{suite}: {messages}"
        );
        let run = Run::read(&home.path().join(format!("{suite}.json"))).expect("a result");
        assert_eq!(run.complete, code(&output) == Some(0), "{suite}");
        let measured = run.cells.iter().filter(|cell| !cell.rounds.is_empty());
        assert!(measured.count() > 0, "{suite}");
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        for scenario in &run.scenarios {
            let cells = run.cells.iter().filter(|cell| cell.scenario == scenario.id);
            if cells.clone().any(|cell| !cell.rounds.is_empty()) {
                assert!(table.contains(&scenario.title), "{suite}: {table}");
            }
        }
        if suite == "dynamic" {
            let kept = run.cells.iter().filter(|cell| {
                let mut rounds = cell.rounds.iter();
                cell.scenario.starts_with("page-cache")
                    && rounds.any(|round| round.requests > 0 && round.failed() == 0)
            });
            let names: Vec<&str> = kept.map(|cell| cell.contender.as_str()).collect();
            assert!(
                names.contains(&"apache") && names.contains(&"nginx-uwsgi"),
                "{names:?}"
            );
        }
        if suite == "proxy" {
            assert!(table.contains("added p99 ms"), "{table}");
            let steady = run.cells.iter().filter(|cell| cell.scenario == "steady-32");
            let rounds: Vec<&Round> = steady.flat_map(|cell| &cell.rounds).collect();
            assert_eq!(rounds.len(), 2, "{messages}");
            for round in rounds {
                assert!(round.extra["direct_p99_us"] > 0.0);
                assert!(
                    round.command.contains("from 8 addresses"),
                    "{}",
                    round.command
                );
            }
        }
        let compared = home.bench(&format!("compare {suite}.json {suite}.json"));
        assert_eq!(code(&compared), Some(0), "{suite}: {}", stderr(&compared));
        let compared = String::from_utf8_lossy(&compared.stdout).into_owned();
        assert!(compared.contains("No difference in"), "{suite}: {compared}");
    }
}

/// The scenario in which the server exits is measured last.
#[test]
fn a_server_that_dies_of_one_file_is_measured_with_other_files() {
    let home = Home::new();
    fs::write(home.path().join("small.py"), DIES_OF_SMALL).expect("a script");
    let catalogue = format!(
        "[[contender]]\nname = \"small\"\ntitle = \"small\"\n\
         abilities = [\"http\", \"keep-alive\", \"files\", \"hello\"]\ninstall = {{ note = \"a test\" }}\n\
         [[contender.program]]\nkey = \"python\"\nnames = [\"python3\"]\n\
         [[contender.start]]\ncommand = [\"{{python}}\", \"{}\", \"{{host}}\", \"{{http}}\", \
         \"{{root}}\"]\n",
        home.path().join("small.py").display()
    );
    fs::write(home.path().join("catalogue.toml"), catalogue).expect("a catalogue");
    let output = home.bench(
        "run matrix --quick --with small --catalogue catalogue.toml --rounds 3 --seconds 1 \
         --warm-up 0 --silent --csv matrix.csv -o matrix.json",
    );
    let messages = stderr(&output);
    assert_eq!(code(&output), Some(1), "{messages}");
    let run = Run::read(&home.path().join("matrix.json")).expect("a result");
    let cells = run.cells.iter();
    let (small, others): (Vec<_>, Vec<_>) =
        cells.partition(|cell| cell.scenario.starts_with("plain-1k-"));
    assert_eq!((small.len(), others.len()), (2, 4), "{messages}");
    for cell in small {
        let why = cell.failure.as_deref().unwrap_or_default();
        assert!(
            why.contains("the server ended during the measurement"),
            "{why}"
        );
    }
    for cell in others {
        assert_eq!(cell.failure, None, "{}", cell.scenario);
        assert!(!cell.rounds.is_empty(), "{}", cell.scenario);
    }
    let rows = fs::read_to_string(home.path().join("matrix.csv")).expect("a table");
    assert_eq!(rows.lines().count(), 1 + 4, "{rows}");
}

/// A page load without the style sheet is a failure.
#[test]
fn an_incomplete_page_is_a_failure() {
    if !installed("chromium") {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no chromium");
        eprintln!("not tested: no chromium");
        return;
    }
    let home = Home::new();
    fs::write(home.path().join("partial.py"), PARTIAL).expect("a script");
    let catalogue = format!(
        "[[contender]]\nname = \"partial\"\ntitle = \"partial\"\n\
         abilities = [\"https\", \"hello\", \"files\"]\ninstall = {{ note = \"a test\" }}\n\
         [[contender.program]]\nkey = \"python\"\nnames = [\"python3\"]\n\
         [[contender.start]]\ncommand = [\"{{python}}\", \"{}\", \"{{host}}\", \"{{https}}\", \
         \"{{root}}\", \"{{combined}}\"]\n",
        home.path().join("partial.py").display()
    );
    fs::write(home.path().join("catalogue.toml"), catalogue).expect("a catalogue");
    let output = home.bench(
        "run page --with partial --catalogue catalogue.toml --rounds 1 --silent -o page.json",
    );
    let messages = stderr(&output);
    assert_eq!(code(&output), Some(2), "{messages}");
    assert!(
        messages.contains("the page is incomplete: https://localhost:"),
        "{messages}"
    );
    assert!(messages.contains("/journal.css: status 404"), "{messages}");
    assert!(messages.contains("nothing could be measured"), "{messages}");
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(PathBuf::from("/usr/sbin"));
    folders.iter().any(|folder| folder.join(program).is_file())
}

/// Server that serves the page at every path and misbehaves from the seventh request on.
const MISBEHAVE: &str = r#"
import os, signal, socket, sys, threading, time
how, host, port, page = sys.argv[1:5]
body = open(page, "rb").read()
marker = sys.argv[0] + ".died"
if how == "never":
    sys.exit("no such luck")
answered = 0

def write_on():
    while True:
        try:
            os.makedirs(os.path.dirname(page) + "/more", exist_ok=True)
        except OSError:
            pass
        time.sleep(0.0002)

if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=write_on, daemon=True).start()

def answer(connection):
    global answered
    connection.recv(4096)
    answered += 1
    status, content, promised = b"200 OK", body, None
    if answered > 6:
        if how == "wrong-status" and answered % 3 == 0:
            status = b"503 Later"
        if how == "wrong-length" and answered % 3 == 0:
            content = body[:-1]
        if how == "seldom-wrong" and answered % 20 == 0:
            status = b"503 Later"
        if how == "drop" and answered % 3 == 0:
            return connection.close()
        if how == "cut" and answered % 10 == 0:
            promised, content = len(body), body[:50]
        if how == "die-once" and not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(3)
        if how == "hang":
            time.sleep(1000)
        if how == "die":
            sys.stderr.write("I can't go on\n")
            sys.stderr.flush()
            os._exit(3)
    connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: " + str(promised or len(content)).encode()
        + b"\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + content)
    connection.close()

def guarded(connection):
    try:
        answer(connection)
    except OSError:
        pass

listener = socket.create_server((host, int(port)), backlog=1024)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=guarded, args=(connection,), daemon=True).start()
"#;

/// Server of the site that exits on the third request for a small file.
const DIES_OF_SMALL: &str = r#"
import http.server, os, sys
host, port, root = sys.argv[1:4]
asked = 0

class Small(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=root)

    def do_GET(self):
        global asked
        if os.path.getsize(self.translate_path(self.path)) <= 1024:
            asked += 1
            if asked > 2:
                os._exit(3)
        super().do_GET()

http.server.ThreadingHTTPServer((host, int(port)), Small).serve_forever()
"#;

/// Server of the site over TLS that lacks the style sheet.
const PARTIAL: &str = r#"
import http.server, ssl, sys
host, port, root, combined = sys.argv[1:5]

class Partial(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=root)

    def do_GET(self):
        if self.path.endswith(".css"):
            return self.send_error(404)
        super().do_GET()

server = http.server.ThreadingHTTPServer((host, int(port)), Partial)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(combined)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;
