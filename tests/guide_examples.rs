//! Tests of the guide's examples, run as printed.
//!
//! Each code block of the guide, of README.md and of CONTRIBUTING.md runs in a scenario below, is tested by
//! `anthill check`, or is listed in [`NOT_RUN`] with the reason.
//!
//! A scenario is a shell script in an isolated environment: new namespaces for mounts, network and
//! processes, a copy of /etc, and empty folders /home, /run, /srv, /usr/local, /var/lib and /var/log.
//! Examples therefore use ports 80 and 443, absolute paths and host names as printed. The processes of a
//! scenario end with the script.

use std::collections::BTreeSet;
use std::process::Command;

use crate::lifecycle::is_root;
use crate::papers::{pages, paper};
use crate::support::python;
use crate::support::{Done, Folder, finish, tool, tools_folder};
use crate::{
    guide_applications, guide_containers, guide_porting, guide_publishing, guide_recipes,
    service_managers, systemd,
};

/// A code block of a document.
pub struct Block {
    pub document: String,
    pub language: String,
    pub text: String,
}

impl Block {
    pub fn is(&self, document: &str, beginning: &str) -> bool {
        self.document.ends_with(document) && self.text.starts_with(beginning)
    }
}

/// Returns all code blocks of the guide, README.md and CONTRIBUTING.md.
pub fn blocks() -> Vec<Block> {
    let documents = ["README.md", "CONTRIBUTING.md"].map(String::from);
    let mut blocks = Vec::new();
    for document in documents.into_iter().chain(pages()) {
        let text = paper(&document);
        let mut fences = text.split("\n```").skip(1);
        while let (Some(block), _) = (fences.next(), fences.next()) {
            let (language, text) = block.split_once('\n').expect("an opening fence");
            blocks.push(Block {
                document: document.clone(),
                language: language.to_owned(),
                text: format!("{text}\n"),
            });
        }
    }
    blocks
}

/// Returns the block of a document that begins with `beginning`, in which `\n` separates lines.
fn block<'b>(blocks: &'b [Block], document: &str, beginning: &str) -> &'b Block {
    let beginning = beginning.replace("\\n", "\n");
    let is_it = |block: &&Block| block.is(document, &beginning);
    let mut found = blocks.iter().filter(is_it);
    let (first, second) = (found.next(), found.next());
    assert!(
        second.is_none(),
        "{document}: two blocks begin with {beginning}"
    );
    first.unwrap_or_else(|| panic!("{document}: no block begins with {beginning}"))
}

/// Expands the directives of a scenario:
///
/// - `@run BEGINNING` becomes the text of the block with this beginning.
/// - `@file PATH BEGINNING` writes the block into a file.
/// - `@console BEGINNING` runs the lines with `$ ` of the block, and compares their output with its other lines.
pub fn expanded(scenario: &Scenario, blocks: &[Block]) -> String {
    let mut script = String::new();
    for line in scenario.script.lines() {
        let line = line.trim_start();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "@run" => script += &block(blocks, scenario.document, rest).text,
            "@file" => {
                let (path, beginning) = rest.split_once(' ').expect("a path and a beginning");
                let text = &block(blocks, scenario.document, beginning).text;
                script += &format!("cat > {path} <<'END OF BLOCK'\n{text}END OF BLOCK\n");
            }
            "@console" => {
                let text = &block(blocks, scenario.document, rest).text;
                let (commands, output): (Vec<_>, Vec<_>) =
                    text.lines().partition(|line| line.starts_with("$ "));
                let commands = commands.join("\n").replace("$ ", "");
                let output = output.join("\n");
                script += &format!(
                    "{{ {commands}\n}} > \"$M/actual\" 2>&1 || {{ cat \"$M/actual\"; false; }}\n\
                     cat > \"$M/expected\" <<'END OF BLOCK'\n{output}\nEND OF BLOCK\n\
                     shows \"$M/expected\" \"$M/actual\"\n"
                );
            }
            _ => script += &format!("{line}\n"),
        }
    }
    script
}

/// Runs a script in an isolated environment.
pub fn run_in_machine(script: &str) -> Done {
    let folder = Folder::new()
        .with("prelude.sh", PRELUDE)
        .with("scenario.sh", script)
        .with("shows.py", SHOWS);
    for name in ["curl", "git", "mount", "openssl", "python3", "setpriv"] {
        tool(name);
    }
    let mut command = Command::new(tool("unshare"));
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["sh", "-euc", ". \"$M/prelude.sh\"; . \"$M/scenario.sh\""])
        .env("M", folder.path(""))
        .env("ANTHILL", crate::support::program())
        .env("PUBLISHER", crate::support::release_store::publisher())
        .env("CLIENTS", python::environment("python"))
        .env("RECIPES", python::environment("recipes"))
        .env("SERVICES", tools_folder().join("services"))
        .env("SUPPORT", python::script(""));
    finish(command, b"")
}

/// Shell code that sets up the environment of a scenario: network, folders, accounts, host names, and shell
/// functions.
const PRELUDE: &str = r#"
M=${M%/}
python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))'
mkdir "$M/etc" "$M/bin"
cp -a /etc/. "$M/etc/" 2> "$M/cp.log" || true
mount --bind "$M/etc" /etc
touch "$M/bin/anthill"
mount --bind "$ANTHILL" "$M/bin/anthill"
for folder in /home /run /srv /usr/local /var/lib /var/log /var/mail; do mount -t tmpfs tmpfs "$folder"; done
mkdir -p /home/operator /usr/local/bin /run/php /etc/anthill
ln -s "$M/bin/anthill" /usr/local/bin/anthill
export HOME=/home/operator PATH="$M/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export STATE_DIRECTORY= XDG_STATE_HOME= XDG_RUNTIME_DIR= GIT_SSL_NO_VERIFY=1 GIT_TERMINAL_PROMPT=0
chmod 755 "$M" "$M/bin" "$M/etc" /etc
cd
echo insecure > .curlrc
git config --global user.name operator
git config --global user.email operator@example.org
git config --global init.defaultBranch main
git config --global safe.directory '*'
for name in www new shop git files app blog cloud home wiki matrix; do names="${names-example.org} $name.example.org"; done
echo "127.0.0.1 localhost $names" > /etc/hosts
echo 'anthill:x:990:990::/nonexistent:/usr/sbin/nologin' >> /etc/passwd
echo 'anthill:x:990:' >> /etc/group
cat > "$M/bin/sudo" <<'END'
#!/bin/sh
if [ "$1" != -u ]; then exec "$@"; fi
user=$2; shift 2
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
END
chmod 755 "$M/bin/sudo"

# As `anthill`, but `serve` and `proxy` return when the server is ready.
anthill() {
    if [ "$1" != serve ] && [ "$1" != proxy ]; then
        command anthill "$@"
        return
    fi
    # The background job truncates the log later, and the log of an earlier server has the line.
    : > "$M/error.log"
    command anthill "$@" > "$M/access.log" 2> "$M/error.log" < /dev/null &
    until grep -q '^ready' "$M/error.log"; do
        kill -0 $! || { cat "$M/error.log"; return 1; }
        sleep 0.05
    done
}

# Succeeds if the lines of a file with an example are in a file with output; see shows.py.
shows() { python3 "$M/shows.py" "$@"; }

# Fails unless the output of a command contains a text: has TEXT COMMAND...
has() {
    text=$1; shift
    "$@" > "$M/output" 2>&1 || { cat "$M/output"; return 1; }
    grep -qFe "$text" "$M/output" || { echo "no $text in the output of $*:"; cat "$M/output"; return 1; }
}

# Requests a URL with the given options of curl, and prints status and destination of a redirect, and of a response with
# 200 or 404 also two fields and the content. 308 counts as 301.
answer() {
    curl -s --http1.1 -o "$M/content" -D "$M/head" -w '%{http_code} %{redirect_url}' "$@" > "$M/status"
    sed 's/^308/301/' "$M/status"; echo " $*"
    if grep -q -e ^200 -e ^404 "$M/status"; then
        tr -d '\r' < "$M/head" | grep -i -e '^cache-control:' -e '^x-content-type-options:' | tr A-Z a-z | sort
        cat "$M/content"; echo
    fi
}

# Writes $1 as anthill.toml, for the ports 443 and 80, and starts the server.
site() {
    printf '[server]\nhttps = [":443"]\nhttp = [":80"]\nworkers = 1\n%s\n' "$1" > anthill.toml
    anthill serve
}
"#;

/// Program that compares output with an example. `…` alone in a line stands for any lines, and within a
/// line for any text; commit names may differ.
const SHOWS: &str = r#"
import re, sys

example, output = (open(name).read().strip("\n").split("\n") for name in sys.argv[1:3])
at, may_skip = 0, False
for line in example:
    if line == "…":
        may_skip = True
        continue
    pattern = re.escape(line).replace("…", ".*")
    pattern = re.compile(re.sub(r"\b[0-9a-f]{7}\b", "[0-9a-f]{7}", pattern) + r"\s*")
    while may_skip and at < len(output) and not pattern.fullmatch(output[at]):
        at += 1
    if at == len(output) or not pattern.fullmatch(output[at]):
        sys.exit("expected: %s\noutput:\n%s" % (line, "\n".join(output)))
    at, may_skip = at + 1, False
if at < len(output) and not may_skip:
    sys.exit("more output than the example:\n%s" % "\n".join(output))
"#;

/// Blocks outside of the scenarios: the document, the beginning and the reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "upgrades.md",
        "$ sudo anthill restart",
        "the versions are examples; the module `restart` runs the command",
    ),
    (
        "upgrades.md",
        "anthill serve --replace",
        "the module `takeover` runs the command",
    ),
    ("README.md", "make run", BUILD),
    ("README.md", "make release", BUILD),
    ("CONTRIBUTING.md", "make run", BUILD),
    ("CONTRIBUTING.md", "cargo test", BUILD),
    (
        "CONTRIBUTING.md",
        "cargo deny fetch",
        "needs a network and cargo-deny",
    ),
    (
        "proxied-applications.md",
        "curl --path-as-is",
        "asks a member of the reader",
    ),
    ("installation.md", "make run", BUILD),
    ("installation.md", "make release\n", BUILD),
    ("installation.md", "make release TARGET", BUILD),
    ("installation.md", "cargo build", BUILD),
    ("getting-started.md", "mysite/", "a drawing of folders"),
    (
        "certificates.md",
        "error acme:",
        "an answer of Let's Encrypt; tests/acme.rs has the message with another authority",
    ),
    (
        "http3.md",
        "echo 'net.core.rmem_max",
        "a setting of the whole machine",
    ),
    ("deployment.md", "/srv/site/www ->", "a drawing of folders"),
    ("releases.md", "blobs/ab/ab34", "a drawing of folders"),
    (
        "releases.md",
        "the published release",
        "a log line; tests/releases.rs has the message",
    ),
    (
        "releases.md",
        "release 3b5d5c371295 of www",
        "a line of the status; tests/releases.rs has the text",
    ),
    (
        "deployment.md",
        "remote: NOT DEPLOYED",
        "needs a full disk; tests/deploy.rs has the message",
    ),
    ("containers.md", "make release", BUILD),
    ("containers.md", "podman run", IMAGE),
    ("containers.md", "docker compose", IMAGE),
    ("containers.md", "[Container]", IMAGE),
    (
        "containers.md",
        "services:\n  anthill:\n    image: anthill\n    ports",
        IMAGE,
    ),
    (
        "containers.md",
        "restrict,command",
        "a line of authorized_keys with a program of containers",
    ),
    ("recipes-applications.md", "[server]\nPROTOCOL", APPLICATION),
    (
        "recipes-applications.md",
        "[server]\nhttp_addr",
        APPLICATION,
    ),
    ("recipes-applications.md", "http:\n", APPLICATION),
    ("recipes-applications.md", "DOMAIN=", APPLICATION),
    ("recipes-applications.md", "server:\n", APPLICATION),
    (
        "hits.md",
        "<span id",
        "needs a browser; tests/cms.rs runs the script of examples/cms",
    ),
    (
        "logs.md",
        "192.0.2.7",
        "addresses of documentation; tests/logs.rs has the format",
    ),
    (
        "logs.md",
        "# Refused requests in the access log",
        "a file of the repository; tests/fail2ban.rs compares and runs the file",
    ),
    (
        "logs.md",
        "# HTTP/3 comes over UDP",
        "a file of the repository; tests/fail2ban.rs compares and runs the file",
    ),
    (
        "logs.md",
        "www.example.org:443 192.0.2.7",
        "addresses of documentation; tests/logs.rs has the format",
    ),
    ("manager.md", "$ ssh -L", "needs another machine"),
    (
        "commands.md",
        "2 requests are under way",
        "addresses of documentation; tests/manager_requests.rs runs the command",
    ),
    (
        "publishing.md",
        "anthill publish public ~/.local",
        "tests/publish_local.rs publishes into the store of a server",
    ),
    (
        "publishing.md",
        "Host blog-on-vps",
        "needs the configuration of ssh",
    ),
    ("publishing.md", "blobs/ab/ab34", "a drawing of folders"),
    ("bench.md", "cargo build", BENCH),
    ("bench.md", "# zero.toml", BENCH),
    ("bench.md", "anthill bench run journal", BENCH),
    ("bench.md", "wrk -t1", BENCH),
    (
        "outsiders.md",
        "OUTSIDERS=",
        "needs checkouts of other projects",
    ),
];
const IMAGE: &str = "needs a program for containers; tests/guide_containers.rs runs the image";
const APPLICATION: &str = "settings of a program that no registry of the tests has";
const BUILD: &str = "builds the project";
const BENCH: &str = "needs the benchmark kit and minutes; bench/tests runs the commands";

/// Checks that each block runs in a scenario, is tested by `anthill check`, or is listed in [`NOT_RUN`].
#[test]
fn every_block_is_accounted_for() {
    let blocks = blocks();
    let mut known = BTreeSet::new();
    for (document, beginning, _) in NOT_RUN {
        known.insert(&block(&blocks, document, beginning).text);
    }
    let scenarios = [
        SCENARIOS,
        guide_applications::SCENARIOS,
        guide_containers::SCENARIOS,
        guide_recipes::SCENARIOS,
        guide_porting::SCENARIOS,
        guide_publishing::SCENARIOS,
        service_managers::SCENARIOS,
        systemd::SCENARIOS,
    ];
    for scenario in scenarios.into_iter().flatten() {
        for line in scenario.script.lines().map(str::trim_start) {
            let beginning = match line.split_once(' ') {
                Some(("@run" | "@console", beginning)) => beginning,
                Some(("@file", rest)) => rest.split_once(' ').expect("a path and a beginning").1,
                _ => continue,
            };
            known.insert(&block(&blocks, scenario.document, beginning).text);
        }
    }
    for block in &blocks {
        assert!(
            block.language == "toml" || known.contains(&block.text),
            "{}: no test runs this block; add a scenario, or an entry of NOT_RUN:\n{}",
            block.document,
            block.text
        );
    }
    assert!(blocks.len() > 60, "{} blocks", blocks.len());
}

/// Checks that `anthill check` accepts every configuration of the guide. A site completes a partial
/// configuration.
#[test]
fn every_configuration_passes_the_check() {
    let mut script = CHECK.to_owned();
    let mut count = 0;
    for block in blocks().iter().filter(|block| block.language == "toml") {
        if NOT_RUN
            .iter()
            .any(|(document, beginning, _)| block.is(document, beginning))
        {
            continue;
        }
        let mut whole = block.text.clone();
        if !whole.contains("[[site]]") {
            let at = whole.find("[[site.route]]").unwrap_or(whole.len());
            whole.insert_str(at, "\n[[site]]\n");
        }
        let document = &block.document;
        script += &format!(
            "cat > anthill.toml <<'END OF BLOCK'\n{whole}END OF BLOCK\n\
             command anthill check || {{ echo {document}; cat anthill.toml; exit 1; }}\n"
        );
        count += 1;
    }
    assert!(count > 25, "{count} configurations");
    let done = run_in_machine(&script);
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
}

/// Shell code that creates the files named by the configurations of the guide.
const CHECK: &str = r#"
mkdir -p public/manual cgi-bin tools journal sites.d /srv/git/tools /srv/site /srv/www /srv/files /srv/shop/public
mkdir -m 777 /var/log/anthill
echo '/a /b 301' > redirects.txt
mkdir -p /srv/blog /srv/app/assets /srv/media /srv/django/static /srv/django/media /srv/wordpress/wp-content/uploads /srv/dokuwiki /srv/nextcloud
echo > /srv/blog/404.html; echo > /srv/shop/maintenance.html; echo > /srv/www/manual.html
for page in index not-found busy manual/index; do echo > public/$page.html; cp public/$page.html /srv/www/ ; done
touch users.htpasswd managers viewers
printf '[[site]]\nnames = ["blog.example.org"]\n' > sites.d/blog.toml
git init -q --bare /srv/git/tools/site.git
openssl rand -hex 32 > /etc/anthill/tickets
for name in www admin; do names="${dns:+$dns,}DNS:$name.example.org"; dns=$names; done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.org     -addext "subjectAltName=$names,DNS:example.org,DNS:files.example.org" -keyout privkey.pem -out fullchain.pem 2> openssl.log
cat fullchain.pem privkey.pem > /etc/anthill/example.org.pem
cp fullchain.pem our-ca.pem; cp fullchain.pem root.pem
for name in combined origin; do cp /etc/anthill/example.org.pem $name.pem; done
cp fullchain.pem privkey.pem users.htpasswd /etc/anthill/
mkdir /etc/anthill/www.example.org; cp fullchain.pem privkey.pem /etc/anthill/www.example.org/; touch family.htpasswd git.htpasswd
find /etc/anthill -type f -exec chmod 644 {} +
printf '#!/bin/sh\n' > publish-txt; chmod 755 publish-txt
"#;

/// Starts examples/cluster, replaces its pages by sync.sh under load, and stops a member.
#[test]
fn the_example_of_a_cluster_loses_no_request() {
    let example = format!("{}/../examples/cluster", env!("CARGO_MANIFEST_DIR"));
    let script = format!(
        r#"
        cp -R {example} cluster
        sh cluster/start.sh "$M/bin/anthill" pages > start.out 2>&1 &
        start=$!
        until grep -q '^Ctrl-C' start.out; do kill -0 $start; sleep 0.1; done
        head -n 1 start.out | grep '^The balancer'
        cd pages
        until has 127.0.0.14:8080 command anthill balancer list balancer.toml; do sleep 0.1; done
        nodes=$(for i in 1 2 3 4; do curl -sI http://127.0.0.1:8080/; done | grep -c X-Node)
        [ "$nodes" = 4 ]
        mkdir new node1/public.new
        echo 'the new page' > new/index.html
        while [ ! -e done ]; do curl -s -o "$M/page" -w '%{{http_code}}\n' http://127.0.0.1:8080/; done > codes &
        load=$!
        sh ../cluster/sync.sh new "$M/bin/anthill"
        touch done
        wait $load
        [ "$(sort -u codes)" = 200 ]
        for i in 1 2 3 4; do has 'the new page' curl -s http://127.0.0.1:8080/; done
        has 'the new page' cat node1/public.old/../public/index.html
        {FAILED_SYNCS}
        kill $start
        wait $start || true
        "#
    );
    let done = run_in_machine(&script);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

/// Shell code that lets sync.sh fail: with a folder that does not exist, and with a folder that can't be moved into
/// its place. No member stays drained or loses its pages.
const FAILED_SYNCS: &str = r#"
        all_are_up() {
            [ "$(command anthill balancer list balancer.toml | grep -c '127.0.0.1[1-4]:8080 *up')" = 4 ]
            [ "$(for i in 1 2 3 4; do curl -s http://127.0.0.1:8080/; done | grep -c 'the new page')" = 4 ]
        }
        code=0
        sh ../cluster/sync.sh /nonexistent "$M/bin/anthill" 2> sync.err || code=$?
        [ "$code" = 1 ]
        has '/nonexistent is not a folder' cat sync.err
        all_are_up
        printf '#!/bin/sh\ncase $1 in */public.new) exit 1; esac\nexec /bin/mv "$@"\n' > "$M/bin/mv"
        chmod 755 "$M/bin/mv"
        code=0
        sh ../cluster/sync.sh new "$M/bin/anthill" || code=$?
        rm "$M/bin/mv"
        [ "$code" = 1 ]
        all_are_up
"#;

/// Starts examples/cluster with the port of a member taken.
#[test]
fn the_example_of_a_cluster_names_a_failed_server() {
    let example = format!("{}/../examples/cluster", env!("CARGO_MANIFEST_DIR"));
    let script = format!(
        r#"
        port='import socket, time; server = socket.create_server(("127.0.0.12", 8080)); print(1, flush=True)'
        python3 -c "$port; time.sleep(600)" > taken &
        until [ -s taken ]; do sleep 0.1; done
        code=0
        sh {example}/start.sh "$M/bin/anthill" pages > start.out 2> start.err || code=$?
        [ "$code" = 1 ]
        [ ! -s start.out ]
        has 'node2/node.toml ended' cat start.err
        has '127.0.0.12:8080' cat start.err
        if curl -s http://127.0.0.11:8080/; then exit 1; fi
        "#
    );
    let done = run_in_machine(&script);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

/// A script that runs blocks of one document.
pub struct Scenario {
    pub document: &'static str,
    /// True if the scenario needs several accounts and therefore runs only as root.
    pub needs_root: bool,
    pub script: &'static str,
}

/// Runs a scenario, and fails with the output of the scenario.
pub fn run(scenario: &Scenario) {
    if scenario.needs_root && !is_root() {
        return;
    }
    let script = expanded(scenario, &blocks());
    let done = run_in_machine(&script);
    assert_eq!(
        done.code,
        Some(0),
        "{}:\n{script}\n{}\n{}",
        scenario.document,
        done.stdout,
        done.stderr
    );
}

/// Declares the constant `SCENARIOS` of a module, and a test for each scenario.
macro_rules! scenarios {
    ($($name:ident($document:literal, $needs_root:literal) = $script:literal;)+) => {
        pub const SCENARIOS: &[$crate::guide_examples::Scenario] = &[
            $($crate::guide_examples::Scenario {
                document: $document,
                needs_root: $needs_root,
                script: $script,
            }),+
        ];

        $(
            #[test]
            fn $name() {
                let document = $document;
                let (needs_root, script) = ($needs_root, $script);
                let scenario = $crate::guide_examples::Scenario { document, needs_root, script };
                $crate::guide_examples::run(&scenario);
            }
        )+
    };
}
pub(crate) use scenarios;

scenarios! {
    the_readme_runs_as_printed("README.md", true) = r#"
        mkdir public; echo hello > public/index.html
        @run anthill serve ~/public
        has hello curl https://localhost:8443/
        kill $!; wait $! || true
        sed -i /anthill/d /etc/passwd /etc/group
        @file anthill.toml [server]
        echo secret > password
        {
        @run useradd
        } < password
        @run anthill check
        has hello curl https://www.example.org/
        grep '^alice:' users.htpasswd
    "#;

    the_readme_shows_mistakes_as_the_check_prints_them("README.md", false) = r#"
        mkdir public
        {
            printf '[[site]]\nnames = ["www.example.org"]\nrot   = "public"\n\n[[site.route]]\npath  = "/api/"\n'
            printf 'proxy = "localhost:3000"\nallow = ["192.168.0.*"]\n'
        } > anthill.toml
        anthill() { command anthill "$@" || test $? = 2; }
        @console $ anthill check
    "#;

    the_manager_runs_as_printed("manager.md", false) = r#"
        mkdir public
        echo hello > public/index.html
        echo secret | command anthill passwd managers ann
        {
            printf '[manager]\nlisten = "127.0.0.1:8800"\nusers = "managers"\n'
            printf '[[balancer]]\nname = "app"\nmembers = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]\n[[site]]\n'
        } > anthill.toml
        anthill serve
        @console $ anthill manager login
        @console $ url=
        has draining anthill balancer list
        has 'Logged in: <b>ann</b>' curl -su ann:secret http://127.0.0.1:8800/
    "#;

    getting_started_runs_as_printed("getting-started.md", false) = r#"
        @run mkdir -p ~/mysite/public
        has Hello curl https://localhost:8443/
        has 'HTTP/1.1 308' curl -si http://localhost:8080/
        kill $!; wait $! || true
        mkdir app; echo 'of the application' > app/index.html
        python3 -m http.server --bind 127.0.0.1 --directory app 3000 > app.log 2>&1 & app=$!
        until curl -s http://127.0.0.1:3000/ > "$M/output"; do kill -0 $app; sleep 0.05; done
        @run anthill proxy 3000
        has 'of the application' curl https://localhost:8443/
        kill $!; wait $! || true
        kill $app
        @run anthill init blog ~/blog
        has 'This page is public/index.html' curl https://localhost:8443/
        cd ~/mysite
        @file anthill.toml [[site]]
        sed -i 's/^errors/error /' anthill.toml
        ! anthill check > "$M/actual" 2>&1
        @file "$M/expected" error: unknown key
        shows "$M/expected" "$M/actual"
    "#;

    a_service_is_installed_as_printed("getting-started.md", true) = r#"
        mount -t proc proc /proc
        rm /usr/local/bin/anthill
        cp "$M/bin/anthill" /usr/local/bin/
        sed -i /anthill/d /etc/passwd /etc/group
        mkdir -p mysite/public; echo hello > mysite/public/index.html; cd mysite
        echo '[server]' > anthill.toml
        anthill() { /usr/local/bin/anthill "$@"; }
        @run anthill service install
        grep -q ^anthill: /etc/passwd
        until curl -s https://localhost:8443/ > "$M/output"; do sleep 0.05; done
        grep hello "$M/output"
        [ "$(stat -c %U:%a /var/log/anthill)" = anthill:750 ]
        until grep -q '"GET / ' /var/log/anthill/access.log; do sleep 0.05; done
        ! grep '"GET / ' /var/log/anthill.log
        # The script starts a server whose state folder belongs to root.
        /etc/init.d/anthill stop
        chown -R root:root /var/lib/anthill
        /etc/init.d/anthill start
        until curl -s https://localhost:8443/ > "$M/output"; do sleep 0.05; done
        [ "$(stat -c %U /var/lib/anthill /var/lib/anthill/* | sort -u)" = anthill ]
    "#;

    a_site_behind_proxies_runs_as_printed("behind-a-proxy.md", false) = r#"
        mkdir public; echo hello > public/index.html
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=www.example.org \
            -keyout key.pem -out cert.pem 2> openssl.log
        cat cert.pem key.pem > /etc/anthill/example.org.pem
        mkdir scripts; printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"\nenv\n' > scripts/env; chmod 755 scripts/env
        @file anthill.toml [server]\nhttp =
        printf '[[site.route]]\npath = "/ws/"\nproxy = "http://127.0.0.1:9000"\n' >> anthill.toml
        printf '[[site.route]]\npath = "/run/"\ncgi = "scripts"\n' >> anthill.toml
        states_the_client() {
            for field in X-Forwarded-For:6.6.6.6 X-Forwarded-Host:evil.test X-Forwarded-Proto:http Forwarded:for=6.6.6.6 \
                X-Forwarded-Port:6666 X-Forwarded-Prefix:evil.test X-Real-IP:6.6.6.6 X-Original-URL:evil.test X-Rewrite-URL:evil.test \
                X-Forwarded:evil.test X-Forwarded-Scheme:evil X-Forwarded-Server:evil.test X-Forwarded-Ssl:evil \
                X-Forwarded-User:evil X-Client-IP:6.6.6.6 Client-IP:6.6.6.6 True-Client-IP:6.6.6.6 X-Cluster-Client-IP:6.6.6.6 \
                CF-Connecting-IP:6.6.6.6 Fastly-Client-IP:6.6.6.6 Proxy-Client-IP:6.6.6.6 WL-Proxy-Client-IP:6.6.6.6 \
                X-Originating-IP:6.6.6.6 X-AppEngine-User-IP:6.6.6.6 X-Azure-ClientIP:6.6.6.6 X-Envoy-External-Address:evil \
                X-Original-Host:evil.test X-Url-Scheme:evil Front-End-Https:evil CF-Connecting-IPv6:6.6.6.6 \
                CF-Pseudo-IPv4:6.6.6.6 CloudFront-Viewer-Address:6.6.6.6 Fly-Client-IP:6.6.6.6 X-Forward-For:6.6.6.6 \
                X-Original-Forwarded-For:6.6.6.6 X-Envoy-Original-Path:evil X-Scheme:evil X-Remote-User:evil \
                X-HTTP-Host-Override:evil.test X-SSL-Client-Verify:evil X-SSL-Client-Cert:evil X-SSL-Client-DN:evil
            do set -- "$@" -H "$field"; done
            curl -s "$@" https://www.example.org/run/env > forged
            grep HTTP_X_FORWARDED_HOST=www.example.org forged
            grep HTTP_X_FORWARDED_PROTO=https forged
            grep HTTPS=on forged
            ! grep -e evil -e 6666 -e '6\.6\.6\.6' forged
        }
        @file haproxy.cfg defaults\n    mode http
        @file site.conf map
        python3 -c 'import socket
        server = socket.create_server(("127.0.0.1", 9000))
        answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        answer += b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        for conn, _ in iter(server.accept, None): conn.recv(65536), conn.sendall(answer), conn.close()' &
        has_websocket() {
            curl -si --http1.1 -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' \
                -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' https://www.example.org/ws/ > websocket || true
            has 'HTTP/1.1 101' cat websocket
        }
        anthill serve
        server=$!
        haproxy -db -f haproxy.cfg > haproxy.log 2>&1 &
        front=$!
        until curl -so "$M/output" http://www.example.org/; do sleep 0.05; done
        has hello curl -s https://www.example.org/
        has 'location: https://www.example.org/' curl -si http://www.example.org/
        has hello curl -s -H 'Forwarded: for=6.6.6.6' --interface 127.0.0.7 https://www.example.org/
        has_websocket
        until grep -q '^127.0.0.7 ' "$M/access.log"; do sleep 0.05; done
        states_the_client --interface 127.0.0.7
        grep HTTP_X_FORWARDED_FOR=127.0.0.7 forged
        kill $front; wait $front || true
        printf 'daemon off; error_log stderr; pid nginx.pid; events {} http { access_log off; include site.conf; }' > nginx.conf
        mkdir -p /var/log/nginx /var/lib/nginx
        nginx -p "$PWD" -c nginx.conf > nginx.log 2>&1 &
        front=$!
        until curl -so "$M/output" https://www.example.org/; do sleep 0.05; done
        has hello curl -s -H 'Forwarded: for=6.6.6.6' --interface 127.0.0.8 https://www.example.org/
        has_websocket
        head -c 2000000 /dev/zero > body
        # nginx passes the body on: the refusal is one of the server, about the status of the member.
        has 'HTTP/1.1 502' curl -si --http1.1 --data-binary @body https://www.example.org/ws/
        until grep -q '^127.0.0.8 ' "$M/access.log"; do sleep 0.05; done
        states_the_client --interface 127.0.0.8
        grep HTTP_X_FORWARDED_FOR=127.0.0.8 forged
        kill $front; wait $front || true
        kill $server; wait $server || true

        @file anthill.toml [server]\nhttps =
        @file haproxy.cfg defaults\n    mode tcp
        anthill serve
        haproxy -db -f haproxy.cfg > haproxy.log 2>&1 &
        until curl -so "$M/output" https://www.example.org/; do sleep 0.05; done
        has hello curl -s --interface 127.0.0.9 https://www.example.org/
        until grep -q '^127.0.0.9 ' "$M/access.log"; do sleep 0.05; done
    "#;

    an_account_for_publishers_is_made_as_printed("service.md", true) = r#"
        mount -t proc proc /proc
        rm /usr/local/bin/anthill
        cp "$M/bin/anthill" "$PUBLISHER" /usr/local/bin/
        mkdir mysite; cd mysite
        printf '[[site]]\nnames = ["*"]\nrelease = "www"\n' > anthill.toml
        anthill() { /usr/local/bin/anthill "$@"; }
        {
        @run anthill service install --publisher
        } > "$M/actual"
        @file "$M/expected" …\nadd a line
        shows "$M/expected" "$M/actual"
        [ "$(stat -c '%U:%G %a' /var/lib/anthill/releases)" = 'anthill:anthill 2770' ]
        [ "$(stat -c '%U:%G %a' /var/lib/anthill)" = 'anthill:anthill 710' ]
        [ "$(stat -c '%U:%G %a' /home/publish/.ssh)" = 'publish:publish 700' ]
        grep -q '^publish:\*:' /etc/shadow
        # A key of the account runs the printed command.
        command=$(sed -n 's/^restrict,command="\(.*\)" KEY$/\1/p' "$M/actual")
        printf '#!/bin/sh\nexec setpriv --reuid publish --regid publish --init-groups %s\n' "$command" > "$M/ssh"
        chmod 755 "$M/ssh"
        mkdir page; echo hello > page/index.html
        until curl -so "$M/output" https://localhost:8443/; do sleep 0.05; done
        has 'served by all workers' anthill publish --ssh "$M/ssh" page host
        has hello curl -s https://localhost:8443/
        # The account and the store stay as they are.
        has 'receive www' anthill service install --publisher publish
        # A store whose files belong to one account is left alone.
        chmod g-s /var/lib/anthill/releases
        ! anthill service install --publisher publish > "$M/refused" 2>&1
        has 'chgrp -R anthill /var/lib/anthill/releases' cat "$M/refused"
        printf '[[site]]\nroot = "page"\n' > anthill.toml
        ! anthill service install --publisher publish > "$M/refused" 2>&1
        has 'sites with `release`' cat "$M/refused"
    "#;

    a_service_is_printed_as_printed("service.md", false) = r#"
        mkdir public; echo '[server]' > anthill.toml
        @run anthill service print
        has ReadWritePaths anthill service print --init systemd || has ProtectSystem anthill service print --init systemd
    "#;

    passwords_are_set_as_printed("routes.md", false) = r#"
        echo secret > password
        {
        @run anthill passwd users.htpasswd alice
        } < password
        [ -f users.htpasswd ] && ! grep alice users.htpasswd
    "#;

    ticket_keys_are_made_as_printed("tls.md", false) = r#"
        {
        @run openssl rand
        } > /etc/anthill/tickets
        mkdir public
        [ "$(wc -c < /etc/anthill/tickets)" = 65 ]
    "#;

    the_hook_for_dns_publishes_a_record("certificates.md", false) = r#"
        @file "$M/bin/publish-txt" #!/bin/sh
        printf '#!/bin/sh\necho "$@" > "$M/arguments"\ncat > "$M/record"\n' > "$M/bin/nsupdate"
        printf '#!/bin/sh\n' > "$M/bin/sleep"
        chmod 755 "$M/bin/publish-txt" "$M/bin/nsupdate" "$M/bin/sleep"
        publish-txt present _acme-challenge.example.org value
        has 'update add _acme-challenge.example.org. 60 TXT "value"' cat "$M/record"
        has '-k /etc/anthill/ddns.key' cat "$M/arguments"
        publish-txt cleanup _acme-challenge.example.org value
        has 'update delete _acme-challenge.example.org. TXT "value"' cat "$M/record"
    "#;

    a_script_answers_as_printed("cgi.md", false) = r#"
        mkdir -p public cgi-bin
        @file cgi-bin/hello #!/bin/sh
        chmod 755 cgi-bin/hello
        printf '#!/bin/sh\necho done > "$M/work.part"; mv "$M/work.part" "$M/work"\n' > "$M/bin/long-work"
        chmod 755 "$M/bin/long-work"
        printf '#!/bin/sh\nPATH=%s/bin:$PATH\nexport M=%s\nprintf "Content-Type: text/plain\\n\\n"\n' "$M" "$M" > cgi-bin/starts
        cat >> cgi-bin/starts <<'END OF SCRIPT'
        @run setsid sh
        END OF SCRIPT
        chmod 755 cgi-bin/starts
        @file route.toml [[site.route]]\npath = "/cgi-bin/"
        site "$(printf '[[site]]\n'; cat route.toml)"
        has 'Hello, 127.0.0.1' curl https://localhost/cgi-bin/hello
        curl -s https://localhost/cgi-bin/starts
        until [ -f "$M/work" ]; do sleep 0.05; done
    "#;

    an_application_has_its_own_account("cgi.md", true) = r#"
        mkdir -p /srv/shop/public /home/operator/shop; chmod 755 /srv
        echo '<?php echo get_current_user(), " ", posix_getpwuid(posix_geteuid())["name"]; ' > /srv/shop/public/index.php
        touch /srv/shop/settings.php
        @run useradd
        rm -f /etc/php/8.2/fpm/pool.d/*
        @file /etc/php/8.2/fpm/pool.d/shop.conf ; /etc/php
        php-fpm8.2 --nodaemonize > "$M/fpm.log" 2>&1 &
        until [ -S /run/php/shop.sock ]; do kill -0 $! || { cat "$M/fpm.log"; false; }; sleep 0.05; done
        @file shop.toml [[site]]\nnames = ["shop.example.org"]
        site "$(printf 'user = "anthill"\n'; cat shop.toml)"
        has 'shop shop' curl https://shop.example.org/
    "#;

    repositories_are_cloned_as_printed("git.md", false) = r#"
        git init -q --bare /srv/git/tools/hammer.git
        @file route.toml [[site.route]]\npath   = "/git/"
        mkdir public
        sed 's/^export.*//' route.toml > marked.toml
        site "$(printf '[[site]]\n'; cat marked.toml)"
        ! git ls-remote https://example.org/git/tools/hammer.git
        @run touch /srv
        git ls-remote https://example.org/git/tools/hammer.git
        kill $!; wait $! || true
        site "$(printf '[[site]]\n'; cat route.toml)"
        @run git clone https
        [ -d hammer/.git ] && [ -d same/.git ]
    "#;

    git_is_configured_as_printed("git.md", false) = r#"
        git init -q --bare /srv/git/tools/hammer.git
        @run git config --global
        has HTTP/1.1 git config --get http.version
        @run cd /srv
        has true git config --get uploadpackfilter.sparse:oid.allow
        has true git config --get uploadpackfilter.object:type.allow
    "#;

    a_branch_is_deployed_as_printed("deployment.md", false) = r#"
        git init -q --bare /srv/git/tools/site.git
        mkdir -p /srv/site public
        echo 'machine git.example.org login alice password secret' > .netrc
        echo secret | anthill passwd users.htpasswd alice
        @file deploy.toml [[site]]
        site "$(cat deploy.toml)"
        git clone -q https://git.example.org/tools/site.git 2> "$M/clone.log"
        cd site
        echo '<h1>The old page</h1>' > index.html
        git add index.html; git commit -qm old; git tag 302c0d1; git push -q origin main
        echo '<h1>The new page</h1>' > index.html; git commit -qam new
        @console $ git push && curl
        [ "$(readlink /srv/site/www)" = ".www.deployed/$(git rev-parse HEAD)" ]
        @run git push --force
        has 'The old page' curl https://www.example.org/
    "#;

    pages_are_purged_as_printed("cache.md", false) = r#"
        mkdir -p public journal
        printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"; date +%%N\n' > journal/2026
        chmod 755 journal/2026
        @file route.toml [[site.route]]
        site "$(printf '[[site]]\nnames = ["www.example.org"]\n'; sed 's/= 10/= 3600/' route.toml)"
        one=$(curl -s https://www.example.org/journal/2026)
        [ "$one" = "$(curl -s https://www.example.org/journal/2026)" ]
        @run anthill purge
        [ "$one" != "$(curl -s https://www.example.org/journal/2026)" ]
    "#;

    members_are_steered_as_in_the_guide("balancer.md", false) = r#"
        mkdir public
        @file cluster.toml [[site]]\nnames = ["www.example.org"]
        site "$(cat cluster.toml)"
        @run anthill balancer\nanthill balancer drain
        @run anthill balancer add
        has 'no edit is in force' anthill balancer differences
    "#;

    heartbeats_are_announced_as_printed("balancer.md", false) = r#"
        mkdir public
        @file farm.toml [[site]]\nroot = "public"\n\n[[site.route]]\npath = "/"\nbalance = "farm"
        @file datagram v=1
        site "$(sed 's/10\.0\.0\.11/127.0.0.1/; s/10\.0\.0\.12/127.0.0.2/' farm.toml)"
        python3 -c 'import socket, sys
        datagram = open("datagram", "rb").read().strip()
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(datagram, ("127.0.0.1", 27999))'
        until anthill balancer list | grep 'announces 75 idle and 5 busy workers'; do sleep 0.05; done
    "#;

    the_configuration_of_nginx_is_ported_as_printed("porting.md", false) = r#"
        printf 'events {} http { ' > nginx.conf
        cat >> nginx.conf <<'END OF CONF'
        @run upstream app
        END OF CONF
        printf '}' >> nginx.conf
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=www.example.org \
            -keyout key.pem -out cert.pem 2> openssl.log
        cat cert.pem key.pem > /etc/anthill/example.org.pem
        mkdir -p public /var/log/nginx /var/lib/nginx
        nginx -t -p "$PWD" -c nginx.conf -g 'pid nginx.pid;'
        @file anthill.toml [server]\nhttps = [":443"]
        anthill check
    "#;

    a_request_is_explained_as_printed("commands.md", false) = r#"
        mkdir -p public/private; echo plan > public/private/plan.html
        {
            printf '[server]\nhttps = [":443"]\n\n[[site]]\nnames = ["www.example.org"]\n\n'
            printf '[[site.route]]\npath  = "/private/"\nallow = ["192.168.0.0/24"]\n'
        } > anthill.toml
        @console $ anthill explain
    "#;

    routes_are_listed_as_printed("commands.md", false) = r#"
        mkdir -p public/docs; echo hello > public/index.html
        printf 'alice:$2y$05$JtISgwVROMcBKMMN7cIGOu5JtSdSomc.t8VaistUhc87WVdnwh1O.\n' > users
        {
            printf '[[site]]\nnames = ["www.example.org"]\n\n'
            printf '[[site.route]]\npath  = "/app/"\nproxy = "http://127.0.0.1:3000"\n\n'
            printf '[[site.route]]\npath  = "/app/admin/"\nusers = "users"\n\n'
            printf '[[site.route]]\npath = "/docs/"\ntry  = ["$path", "$path.html"]\n'
        } > anthill.toml
        @console $ anthill check --routes
    "#;

    members_are_drained_as_printed("commands.md", false) = r#"
        site "$(printf '[[balancer]]\nname = "app"\nmembers = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]\n[[site]]\n[[site.route]]\npath = "/"\nbalance = "app"\n')"
        @run anthill balancer drain --wait
        anthill balancer stop app 127.0.0.1:9002
        @run anthill balancer set
        has 'app: p2c' anthill balancer list app
        anthill balancer list > "$M/list"
        has '9001 up' cat "$M/list"
        has '9002 stopped' cat "$M/list"
    "#;

    hits_are_shown_as_printed("hits.md", false) = r#"
        mkdir -p public/journal; echo ants > public/journal/ants.html
        @file route.toml [[site.route]]
        site "$(printf '[[site]]\nnames = ["www.example.org"]\n'; cat route.toml)"
        curl -sA Mozilla/5.0 https://www.example.org/journal/ants.html
        @run anthill hits
        curl -s https://www.example.org/views/journal/ants.html > "$M/actual"
        @file "$M/expected" {"path"
        python3 -c 'import json, sys
        example, actual = (json.load(open(name)) for name in sys.argv[1:])
        assert example.keys() == actual.keys(), actual
        assert example["path"] == actual["path"]' "$M/expected" "$M/actual"
    "#;

    status_is_shown_as_printed("logs.md", false) = r#"
        mkdir public
        site ''
        @run anthill status
    "#;

    logs_are_shown_as_printed("logs.md", false) = r#"
        mount -t proc proc /proc
        mkdir public
        site ''
        curl -o page https://www.example.org/one
        until grep -q '"GET /one ' "$M/access.log"; do sleep 0.05; done
        {
        @run anthill log
        } > printed 2> note &
        # Each of the three commands prints the line.
        until [ "$(grep -c '"GET /one ' printed)" = 3 ]; do sleep 0.05; done
        curl -o page https://www.example.org/two
        until grep -q '"GET /two ' printed; do sleep 0.05; done
    "#;

    metrics_are_printed_in_each_format("metrics.md", false) = r#"
        mkdir public
        site ''
        @run anthill metrics
    "#;

    a_binary_is_replaced_as_printed("upgrades.md", false) = r#"
        mkdir /etc/anthill/public; echo '[server]' > /etc/anthill/anthill.toml
        ln -s "$M/bin/anthill" anthill
        @run ./anthill check
        [ ! -L /usr/local/bin/anthill ] && cmp "$ANTHILL" /usr/local/bin/anthill
    "#;

    a_site_is_saved_and_restored_as_printed("backup.md", false) = r#"
        mkdir -p public new; echo saved > public/index.html; echo other > new/index.html
        site "$(printf '[[site]]\nnames = ["www.example.org"]\n[[site]]\nnames = ["new.example.org"]\nroot = "new"\n')"
        @run anthill backup
        has saved cat look-at-it/root/index.html
        has saved curl https://new.example.org/
    "#;

    logrotate_works_as_printed("logs.md", true) = r#"
        @run install -d
        @file /etc/logrotate.d/anthill /var/log/anthill/*.log {
        chmod 644 /etc/logrotate.d/anthill
        cd /etc/anthill
        mkdir public; echo hello > public/index.html
        site "$(printf 'user = "anthill"\n[log]\naccess = "/var/log/anthill/access.log"\nerrors = "/var/log/anthill/errors.log"\n')"
        chmod -R a+rX /etc/anthill
        curl -o page https://www.example.org/one
        for round in 1 2; do
            # A line reaches the file within about a second, or at once by the command.
            anthill reopen /etc/anthill/anthill.toml
            logrotate --force --state /var/log/anthill/state /etc/logrotate.d/anthill > "$M/output" 2>&1 || { cat "$M/output"; false; }
            [ ! -s "$M/output" ] || { cat "$M/output"; false; }
            curl -o page https://www.example.org/$round
        done
        anthill reopen /etc/anthill/anthill.toml
        zcat /var/log/anthill/access.log.2.gz | grep -c 'GET /one HTTP/2.0"'
        grep -c 'GET /1 HTTP/2.0"' /var/log/anthill/access.log.1
        grep -c 'GET /2 HTTP/2.0"' /var/log/anthill/access.log
        [ "$(stat -c %U:%a /var/log/anthill/access.log)" = anthill:640 ]
    "#;

    an_owner_saves_and_restores_as_printed("backup.md", true) = r#"
        useradd --create-home alice
        mkdir -p /home/alice/www/public; echo saved > /home/alice/www/public/index.html
        chown -R alice: /home/alice; chmod 755 /home/alice
        cd /etc/anthill
        site "$(printf 'user = "anthill"\n[[site]]\nnames = ["www.example.org"]\nroot = "/home/alice/www/public"\n')"
        sed -i '/^https/d; /^http /d' anthill.toml
        {
        @run sudo -u alice
        } > "$M/output" 2>&1 || { cat "$M/output"; false; }
        grep '^warning: the hit counts are not saved' "$M/output" > "$M/actual"
        @file "$M/expected" warning:
        shows "$M/expected" "$M/actual"
    "#;
}
