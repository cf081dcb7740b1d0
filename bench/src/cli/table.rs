//! Table of commands and options, from which the parser and the help texts are made.

use super::Done;
use super::typed::Typed;

/// A command: `anthill bench NAME …`.
pub struct Command {
    /// Name of the command.
    pub name: &'static str,
    /// One-line description without a full stop.
    pub about: &'static str,
    /// Paragraphs of the help text, one per element.
    pub details: &'static [&'static str],
    /// Operands for the usage line: `SUITE`, `RESULT…`.
    pub operands: &'static str,
    /// Smallest and largest number of operands.
    pub count: (usize, usize),
    /// Options of the command.
    pub options: &'static [Opt],
    /// Function that runs the command.
    pub run: fn(&Typed) -> Done,
}

/// An option: `--long`, or `--long VALUE`.
pub struct Opt {
    /// Long name without dashes.
    pub long: &'static str,
    /// Short name without dash.
    pub short: Option<char>,
    /// Name of the value for the help text, if the option takes one.
    pub value: Option<&'static str>,
    /// One-line description without a full stop.
    pub about: &'static str,
}

const fn option(long: &'static str, value: &'static str, about: &'static str) -> Opt {
    Opt {
        long,
        short: None,
        value: Some(value),
        about,
    }
}

const fn switch(long: &'static str, about: &'static str) -> Opt {
    Opt {
        long,
        short: None,
        value: None,
        about,
    }
}

const fn output(about: &'static str) -> Opt {
    Opt {
        long: "output",
        short: Some('o'),
        value: Some("FILE"),
        about,
    }
}

/// The `--help` option of every command.
pub static HELP: Opt = Opt {
    long: "help",
    short: Some('h'),
    value: None,
    about: "Show what this command does",
};

const CATALOGUE: Opt = option(
    "catalogue",
    "FILE",
    "More contenders, or other settings of the known ones (TOML, as contenders.toml)",
);

/// All commands, in the order of the help text.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "run",
        about: "Measure contenders side by side by a suite",
        details: &[
            "Servers and client are held to different processors. Rounds are interleaved: every \
             contender has its turn before the next round begins, so that what drifts is in all.",
            "After each round the result is written, so that Ctrl-C loses nothing; --resume goes on.",
            "Exit status: 0; 1 if a contender failed, were it in part; 2 if nothing could be measured; 130 after Ctrl-C.",
        ],
        operands: "SUITE",
        count: (1, 1),
        options: &[
            option(
                "with",
                "A,B,C",
                "These contenders, instead of the suite's own",
            ),
            option(
                "rounds",
                "N",
                "Rounds of each, instead of the suite's own (3, 5 or 9)",
            ),
            option(
                "seconds",
                "S",
                "Seconds of a round, instead of the suite's own (1 to 5)",
            ),
            option(
                "warm-up",
                "S",
                "Seconds before each round that don't count, instead of 0.5",
            ),
            option(
                "timeout",
                "S",
                "Seconds until a response is given up, instead of 10",
            ),
            switch(
                "quick",
                "Fewer scenarios, 3 rounds of 1 s: to see that it works",
            ),
            switch(
                "full",
                "Every scenario of the source document, 5 longer rounds: takes hours",
            ),
            switch(
                "as-published",
                "With the settings of the source document, unequal as they were",
            ),
            option(
                "driver",
                "NAME",
                "Ask by embedded (our own), wrk, ab, siege or h2load",
            ),
            output("Where the result goes, instead of SUITE.json (or SUITE-2.json)"),
            switch(
                "resume",
                "Go on with what that file has: the same command, interrupted before",
            ),
            option(
                "csv",
                "FILE",
                "matrix: also as CSV with Spare Cores' columns, as matrix.csv; what is over TLS into \
                 matrix.tls.csv, and of several contenders matrix.NAME.csv each",
            ),
            option(
                "machine",
                "FILE",
                "A profile of this machine (TOML: name, price)",
            ),
            CATALOGUE,
            option("server-cpus", "LIST", "The server's processors: 0-3,8"),
            option("client-cpus", "LIST", "The client's processors"),
            option(
                "port",
                "N",
                "The servers listen there (and with TLS on the next) instead of on free ports",
            ),
            option(
                "node",
                "NAME",
                "growth: what the nodes run, instead of anthill",
            ),
            option(
                "node-share",
                "S",
                "growth: each node's share of a processor, instead of 0.01",
            ),
            option("keep", "FOLDER", "Keep configurations and logs there"),
            switch("silent", "Show no progress"),
        ],
        run: super::run::run,
    },
    Command {
        name: "list",
        about: "Show the suites, and the contenders with their versions",
        details: &["Of a contender that can't take part it says why, and how to install it."],
        operands: "",
        count: (0, 0),
        options: &[CATALOGUE],
        run: super::list::run,
    },
    Command {
        name: "report",
        about: "Draw tables and charts from results",
        details: &["Several results of one suite are laid beside each other, machine by machine."],
        operands: "RESULT…",
        count: (1, usize::MAX),
        options: &[
            output("Where it goes, instead of standard output: .html, .md or .csv"),
            option(
                "format",
                "NAME",
                "markdown, html or csv, whatever the file's name",
            ),
            option(
                "figures",
                "FILE",
                "Write the tables between the marks of that Markdown file (docs/performance.md)",
            ),
            option(
                "summary",
                "FILE",
                "Write the short table between the marks of that Markdown file (README.md)",
            ),
            switch(
                "published",
                "Lay the source documents' figures beneath, marked as such",
            ),
        ],
        run: super::report::report,
    },
    Command {
        name: "compare",
        about: "Say what changed between two results",
        details: &["Differences within the noise are called so."],
        operands: "BEFORE AFTER",
        count: (2, 2),
        options: &[output(
            "Where it goes, instead of standard output: .html or .md",
        )],
        run: super::report::compare,
    },
    Command {
        name: "load",
        about: "Ask a server that runs already, by our load generator alone",
        details: &[
            "Status 200 is what is right, and with --bytes the content's length. A certificate is not \
             verified.",
            "Exit status: 0; 1 if a request failed; 130 after Ctrl-C.",
        ],
        operands: "URL",
        count: (1, 1),
        options: &[
            option("http", "VERSION", "1.1, 2 or 3, instead of 1.1"),
            option("connections", "N", "So many connections, instead of 10"),
            option(
                "streams",
                "N",
                "Requests at once on each (HTTP/2 and 3), instead of 1",
            ),
            option(
                "threads",
                "N",
                "Threads that share the connections, instead of 1",
            ),
            option("cpus", "LIST", "Processors they are held to: 0-3,8"),
            option("seconds", "S", "How long, instead of 10"),
            option("requests", "N", "So many requests, instead of a time"),
            option(
                "warm-up",
                "S",
                "Seconds before that don't count, instead of 0",
            ),
            option(
                "timeout",
                "S",
                "Seconds until a response is given up, instead of 10",
            ),
            option(
                "rate",
                "R",
                "Requests a second that fall due whatever is answered (open loop)",
            ),
            switch("close", "A connection for each request"),
            switch("resumed", "TLS sessions are taken up again"),
            option("bytes", "N", "Length of the content that is expected"),
            switch("json", "Print the round as results have it, in JSON"),
        ],
        run: super::load::run,
    },
    Command {
        name: "import",
        about: "Make a result of what wrk, ab, siege or h2load printed",
        details: &[
            "A text may hold several outputs among other words. - is standard input.",
            "Outputs of one generator are rows of one table, named by the heading (##) above them, \
             else by their file.",
        ],
        operands: "FILE…",
        count: (1, usize::MAX),
        options: &[output(
            "Where the result goes, instead of FILE.json (FILE-2.json if that is there; of several \
             files imported.json)",
        )],
        run: super::import::run,
    },
];

impl Command {
    /// Returns the options of the command and `--help`.
    pub fn options(&self) -> impl Iterator<Item = &'static Opt> + use<> {
        self.options.iter().chain([&HELP])
    }

    /// Returns the usage line: `run [OPTIONS] SUITE`.
    pub fn usage(&self) -> String {
        let options = if self.options.is_empty() {
            ""
        } else {
            " [OPTIONS]"
        };
        format!("{}{options} {}", self.name, self.operands)
            .trim_end()
            .to_owned()
    }
}

impl Opt {
    /// Returns the option for the help text: `-o, --output FILE`.
    pub fn usage(&self) -> String {
        let short = self
            .short
            .map_or("    ".to_owned(), |short| format!("-{short}, "));
        let value = self.value.map_or(String::new(), |name| format!(" {name}"));
        format!("{short}--{}{value}", self.long)
    }
}

/// Returns the text of `anthill bench --help`.
pub fn overview() -> String {
    let mut text = format!(
        "{}\nMeasures web servers side by side, and reports it\n\nUsage: anthill bench COMMAND [OPTIONS]\n\nCommands:\n",
        crate::TOOL
    );
    for command in COMMANDS {
        text.push_str(&format!("  {:<10}{}\n", command.name, command.about));
    }
    text.push_str("\nSuites:\n");
    for suite in crate::suite::SUITES {
        text.push_str(&format!("  {:<10}{}\n", suite.name, suite.about));
    }
    text.push_str("\nOf one command: anthill bench COMMAND --help\n");
    text
}

/// Returns the text of `anthill bench COMMAND --help`.
pub fn help(command: &Command) -> String {
    let mut text = format!(
        "{}\n\nUsage: anthill bench {}\n",
        command.about,
        command.usage()
    );
    for paragraph in command.details {
        text.push_str(&format!("\n{paragraph}\n"));
    }
    text.push_str("\nOptions:\n");
    for option in command.options() {
        text.push_str(&format!("  {:<26}{}\n", option.usage(), option.about));
    }
    text
}
