//! Table of all commands, with the overview of `anthill bench --help`.

use super::command::{Command, CommandOption};

const fn option(long: &'static str, value: &'static str, about: &'static str) -> CommandOption {
    CommandOption {
        long,
        short: None,
        value: Some(value),
        about,
    }
}

const fn switch(long: &'static str, about: &'static str) -> CommandOption {
    CommandOption {
        long,
        short: None,
        value: None,
        about,
    }
}

const fn output(about: &'static str) -> CommandOption {
    CommandOption {
        long: "output",
        short: Some('o'),
        value: Some("FILE"),
        about,
    }
}

const CATALOGUE: CommandOption = option(
    "catalogue",
    "FILE",
    "Additional contenders, or other settings of known ones (TOML, as contenders.toml)",
);

/// All commands, in the order of the help text.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "run",
        about: "Measure a suite with several contenders side by side",
        details: &[
            "Servers and client are pinned to different processors. Rounds are interleaved: every \
             contender is measured before the next round begins, so that drift affects all equally.",
            "The result is written after each round, so Ctrl-C loses no finished round; --resume continues.",
            "Exit status: 0; 1 if a contender failed, even in part; 2 if nothing could be measured; 130 after Ctrl-C.",
        ],
        operands: "SUITE",
        count: 1..=1,
        options: &[
            option("with", "A,B,C", "Servers, in place of those of the suite"),
            option(
                "rounds",
                "N",
                "Rounds of each contender, instead of the suite's own (3 to 11)",
            ),
            option(
                "seconds",
                "S",
                "Seconds of a round, instead of the suite's own (1 to 5)",
            ),
            option(
                "warm-up",
                "S",
                "Seconds of warm-up before each round, instead of 0.5",
            ),
            option("timeout", "S", "Response timeout in seconds, instead of 10"),
            switch(
                "quick",
                "Fewer scenarios, 3 rounds of 1 s, to see that everything works",
            ),
            switch(
                "full",
                "Every scenario of the source document, 5 longer rounds; takes hours",
            ),
            switch(
                "as-published",
                "Use the source document's settings, which are not equal for all contenders",
            ),
            option(
                "driver",
                "NAME",
                "Load generator: embedded (default), wrk, ab, siege or h2load",
            ),
            output("Result file, instead of SUITE.json (or SUITE-2.json)"),
            switch(
                "resume",
                "Continue an interrupted run of the same command from its result file",
            ),
            option(
                "csv",
                "FILE",
                "matrix: also write CSV with Spare Cores' columns, such as matrix.csv; TLS rows go into \
                 matrix.tls.csv, and several contenders into matrix.NAME.csv each",
            ),
            option(
                "machine",
                "FILE",
                "Profile of this machine (TOML: name, price)",
            ),
            CATALOGUE,
            option("server-cpus", "LIST", "The server's processors: 0-3,8"),
            option("client-cpus", "LIST", "The client's processors"),
            option(
                "port",
                "N",
                "Port of the servers (TLS on the next port), instead of free ports",
            ),
            option(
                "node",
                "NAME",
                "growth, proxy: server behind the balancers, instead of anthill",
            ),
            option(
                "node-share",
                "S",
                "growth: each node's share of a processor, instead of 0.01",
            ),
            option("keep", "FOLDER", "Keep configurations and logs in FOLDER"),
            switch("silent", "Show no progress"),
        ],
        run: super::run::run,
    },
    Command {
        name: "list",
        about: "Show the suites, and the contenders with their versions",
        details: &["For a missing contender, the reason and the way to install it are shown."],
        operands: "",
        count: 0..=0,
        options: &[CATALOGUE],
        run: super::list::run,
    },
    Command {
        name: "report",
        about: "Make tables and charts from results",
        details: &["Several results of one suite are shown side by side, machine by machine."],
        operands: "RESULT…",
        count: 1..=usize::MAX,
        options: &[
            output("Report file, instead of standard output: .html, .md or .csv"),
            option(
                "format",
                "NAME",
                "markdown, html or csv, instead of the format by file name",
            ),
            option(
                "figures",
                "FILE",
                "Write the tables between the marks of a Markdown file (docs/performance.md)",
            ),
            option(
                "summary",
                "FILE",
                "Write the short table between the marks of a Markdown file (README.md)",
            ),
            switch(
                "published",
                "Add the source documents' figures, marked as published",
            ),
        ],
        run: super::report::report,
    },
    Command {
        name: "compare",
        about: "Show the differences between two results",
        details: &["Differences within the noise are marked."],
        operands: "BEFORE AFTER",
        count: 2..=2,
        options: &[output(
            "Report file, instead of standard output: .html or .md",
        )],
        run: super::report::compare,
    },
    Command {
        name: "load",
        about: "Load a running server with the kit's own load generator",
        details: &[
            "A response is correct with status 200 and, with --bytes, the given length. Certificates are \
             not verified.",
            "Exit status: 0; 1 if a request failed; 130 after Ctrl-C.",
        ],
        operands: "URL",
        count: 1..=1,
        options: &[
            option("http", "VERSION", "1.1, 2 or 3, instead of 1.1"),
            option("connections", "N", "Number of connections, instead of 10"),
            option(
                "streams",
                "N",
                "Concurrent requests per connection (HTTP/2 and 3), instead of 1",
            ),
            option(
                "threads",
                "N",
                "Threads that share the connections, instead of 1",
            ),
            option("cpus", "LIST", "Processors of the threads: 0-3,8"),
            option("seconds", "S", "Duration in seconds, instead of 10"),
            option("requests", "N", "Number of requests, instead of a duration"),
            option("warm-up", "S", "Seconds of warm-up, instead of 0"),
            option("timeout", "S", "Response timeout in seconds, instead of 10"),
            option(
                "rate",
                "R",
                "Requests per second, sent without waiting for responses (open loop)",
            ),
            switch("close", "Open a new connection for each request"),
            switch("resumed", "Resume TLS sessions"),
            option("bytes", "N", "Expected length of the content"),
            switch("json", "Print the round in JSON, as in a result file"),
        ],
        run: super::load::run,
    },
    Command {
        name: "import",
        about: "Make a result from the output of wrk, ab, siege or h2load",
        details: &[
            "A file may contain several outputs among other text. - is standard input.",
            "Outputs of one generator become rows of one table, named by the heading (##) above the \
             output, otherwise by the file.",
        ],
        operands: "FILE…",
        count: 1..=usize::MAX,
        options: &[output(
            "Result file, instead of FILE.json (FILE-2.json if the first exists, imported.json for \
             several files)",
        )],
        run: super::import::run,
    },
];

/// Returns the text of `anthill bench --help`.
pub(super) fn overview() -> String {
    let mut text = format!(
        "{}\nMeasures web servers side by side and reports the results\n\nUsage: anthill bench COMMAND [OPTIONS]\n\nCommands:\n",
        crate::TOOL
    );
    for command in COMMANDS {
        text.push_str(&format!("  {:<10}{}\n", command.name, command.about));
    }
    text.push_str("\nSuites:\n");
    for suite in crate::suite::SUITES {
        text.push_str(&format!("  {:<10}{}\n", suite.name, suite.about));
    }
    text.push_str("\nHelp of a command: anthill bench COMMAND --help\n");
    text
}
