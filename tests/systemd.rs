//! The installed service on machines with systemd: every configuration of the guide, and the life of a service from its
//! installation over reboots to its removal.
//!
//! Each scenario is a shell script for a machine of its own ([`SystemdMachine`]), with the directives of
//! [`crate::guide_examples`]. The line `@reboot` starts the machine again. The machine has no account `anthill` at first.
//!
//! The tests need root, and a Debian system that `tools/setup.sh` makes. Without root the tests do nothing, and `make test`
//! says so.

use crate::guide_examples::{Block, Scenario, blocks, expanded};
use crate::lifecycle::is_root;
use crate::support::systemd_machine::SystemdMachine;

/// Shell code for each part of a scenario: host names, and shell functions.
const PRELUDE: &str = r#"
M=/var/tmp/test; mkdir -p $M
if ! grep -q example.org /etc/hosts; then
    echo insecure > ~/.curlrc
    for name in www new shop git files app blog cloud home wiki; do names="${names-example.org} $name.example.org"; done
    echo "127.0.0.1 localhost $names" > /etc/hosts
    git config --global user.name operator
    git config --global user.email operator@example.org
    git config --global init.defaultBranch main
    git config --global safe.directory '*'
fi
export GIT_SSL_NO_VERIFY=1 GIT_TERMINAL_PROMPT=0

# Fails unless the output of a command contains a text: has TEXT COMMAND...
has() {
    text=$1; shift
    "$@" > $M/output 2>&1 || { cat $M/output; return 1; }
    grep -qFe "$text" $M/output || { echo "no $text in the output of $*:"; cat $M/output; return 1; }
}

# Fails unless a command fails with a text in its output: refuses TEXT COMMAND...
refuses() {
    text=$1; shift
    ! "$@" > $M/output 2>&1 || { echo "$* succeeded"; return 1; }
    grep -qFe "$text" $M/output || { echo "no $text in the output of $*:"; cat $M/output; return 1; }
}

# Waits until a command succeeds, for at most a minute.
await() {
    tries=0
    until "$@" > $M/awaited 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { cat $M/awaited; journalctl --unit anthill --lines 20 --no-pager; return 1; }
        sleep 0.1
    done
}

# Waits until the service answers after a start that the script did not wait for.
answers() { await curl -sf -o $M/page "$@"; }

# Prints the number of the supervisor's process.
supervisor_process() { systemctl show --property MainPID --value anthill; }

# Prints the number of the server's process: the child of the supervisor, or the main process of a build without one.
main_process() {
    first=$(supervisor_process)
    server=$(tr -d ' ' < /proc/$first/task/$first/children)
    echo "${server:-$first}"
}

# Prints the fingerprint of the certificate at an address.
fingerprint() { openssl s_client -connect "$1" -servername www.example.org < /dev/null 2> $M/tls | openssl x509 -noout -fingerprint; }

# Runs a server with the given arguments until its start is complete, and then a command.
with_server() {
    anthill serve "$1" > $M/server.log 2>&1 < /dev/null &
    server=$!
    shift
    until grep -q ^ready $M/server.log; do kill -0 $server || { cat $M/server.log; return 1; }; sleep 0.05; done
    "$@"
    kill $server; wait $server
}
"#;

/// Runs a scenario in a machine.
fn run(scenario: &Scenario) {
    if !is_root() {
        eprintln!("nothing is tested: systemd in namespaces needs root (sudo -E make test)");
        return;
    }
    let mut machine = SystemdMachine::boot();
    let script = expanded(scenario, &blocks());
    for (number, part) in script.split("@reboot\n").enumerate() {
        if number > 0 {
            machine.reboot();
        }
        let done = machine.shell(&format!("{PRELUDE}\nset -x\ncd /root\n{part}"));
        assert_eq!(
            done.code,
            Some(0),
            "{}: part {number}:\n{}\n{}\n{}",
            scenario.document,
            done.stdout,
            done.stderr,
            machine
                .shell("journalctl --unit anthill --lines 30 --no-pager")
                .stdout
        );
    }
}

/// Declares the constant `SCENARIOS`, and a test for each scenario.
macro_rules! machines {
    ($($name:ident($document:literal) = $script:literal;)+) => {
        pub const SCENARIOS: &[Scenario] = &[
            $(Scenario { document: $document, needs_root: true, script: $script }),+
        ];

        $(
            #[test]
            fn $name() {
                run(&Scenario { document: $document, needs_root: true, script: $script });
            }
        )+
    };
}

machines! {
    the_readme_becomes_a_service_in_both_orders("README.md") = r#"
        mkdir -p /srv/site/public; cd /srv/site
        echo hello > public/index.html
        # First without a configuration, as root: the state folder belongs to root.
        with_server /srv/site/public fingerprint localhost:8443 > first
        [ "$(stat -c %U /var/lib/anthill)" = root ] && [ -f /var/lib/anthill/tickets.keys ]
        rm -rf /var/lib/anthill.root; cp -a /var/lib/anthill /var/lib/anthill.root

        @file anthill.toml [server]
        echo secret > password
        {
        @run useradd
        } < password
        anthill check
        # A server that root starts gives the folder to the account, with the keys.
        with_server /srv/site fingerprint localhost:443 | diff first -
        [ "$(stat -c %U /var/lib/anthill /var/lib/anthill/* | sort -u)" = anthill ]

        # The service alone does so too.
        rm -rf /var/lib/anthill; mv /var/lib/anthill.root /var/lib/anthill
        userdel anthill
        chown -R root:root users.htpasswd
        refuses 'chgrp anthill /srv/site/users.htpasswd' anthill service install
        chgrp anthill users.htpasswd
        has 'serves /srv/site/anthill.toml now and after each boot (systemd)' anthill service install
        has hello curl -s https://www.example.org/
        fingerprint localhost:443 | diff first -
        [ "$(stat -c %U /var/lib/anthill/* | sort -u)" = anthill ]
        [ "$(stat -c %U:%a /var/lib/anthill)" = anthill:710 ]
        [ "$(stat -c %U /proc/$(main_process))" = anthill ]
        has 'HTTP/2 403' curl -si https://www.example.org/private/

        # A second installation changes nothing.
        anthill service install
        fingerprint localhost:443 | diff first -
        systemd-analyze security --no-pager anthill > exposure || true
        tail -n 1 exposure
        level=$(sed -n 's/.*Overall exposure level for anthill.service: \([0-9.]*\) .*/\1/p' exposure)
        case $level in 0.*|1.[0-8]) ;; *) cat exposure; false;; esac
        @reboot
        cd /srv/site
        answers https://www.example.org/
        fingerprint localhost:443 | diff first -
        [ "$(stat -c %U /proc/$(main_process))" = anthill ]

        # The supervisor starts a killed server again, and systemd a killed supervisor. The sockets stay in both cases, so no
        # connection is refused: curl tries once.
        first=$(supervisor_process)
        killed=$(main_process)
        kill -KILL $killed
        await [ ! -d /proc/$killed ]
        has hello curl -s https://www.example.org/
        await sh -c "anthill status /srv/site | grep 'started the server again'"
        [ "$(supervisor_process)" = $first ] && [ "$(main_process)" != $killed ]
        [ "$(stat -c %U /proc/$first)" = anthill ]
        has 'serving again, restart 1' systemctl status --no-pager anthill
        fingerprint localhost:443 | diff first -
        killed=$(main_process)
        kill -KILL $first
        await [ ! -d /proc/$killed ]
        has hello curl -s https://www.example.org/
        await sh -c "[ \"\$(systemctl is-active anthill)\" = active ]"
        [ "$(supervisor_process)" != $first ]
        fingerprint localhost:443 | diff first -

        # Reloads by systemd, by root and by the account, which also reach ports below 1024.
        before=$(main_process)
        sed -i 's/^http .*/http  = [":80", ":81"]/' anthill.toml
        systemctl reload anthill
        has 'https://www.example.org/' curl -si http://www.example.org:81/
        sed -i 's/":81"/":82"/' anthill.toml
        anthill reload
        has 'https://www.example.org/' curl -si http://www.example.org:82/
        sed -i 's/":82"/":83"/' anthill.toml
        setpriv --reuid anthill --regid anthill --init-groups anthill reload /srv/site
        has 'https://www.example.org/' curl -si http://www.example.org:83/
        has 'configuration 4' setpriv --reuid anthill --regid anthill --init-groups anthill status /srv/site
        has 'configuration 4' anthill status
        # A refused configuration changes nothing, and the reload fails.
        sed -i 's/^try /tri /' anthill.toml
        ! systemctl reload anthill
        has hello curl -s https://www.example.org/
        sed -i 's/^tri /try /' anthill.toml
        systemctl reload anthill
        # A key of root that appears at a reload is refused with the command that opens the key.
        cp anthill.toml good.toml
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=www.example.org \
            -addext 'subjectAltName=DNS:www.example.org,DNS:example.org' -keyout key.pem -out cert.pem 2> $M/openssl
        chmod 600 key.pem
        sed -i 's/^root .*/root = "public"\ncertificate = "cert.pem"\nkey = "key.pem"/' anthill.toml
        refuses 'chgrp anthill /srv/site/key.pem' anthill reload
        chgrp anthill key.pem; chmod g+r key.pem
        anthill reload
        has 'CN = www.example.org' openssl x509 -noout -subject -in cert.pem
        ! fingerprint localhost:443 | diff first -
        mv good.toml anthill.toml; anthill reload
        [ "$(main_process)" = $before ]
        # The soft limit of open files is the hard limit, which a test in a container may not raise to that of the unit.
        grep '^Max open files' /proc/$before/limits > limits
        [ "$(tr -s ' ' < limits | cut -d ' ' -f 4)" = "$(tr -s ' ' < limits | cut -d ' ' -f 5)" ]
        has 1048576 systemctl show --property LimitNOFILE anthill

        anthill service remove
        ! curl -so $M/page https://www.example.org/
        [ ! -e /etc/systemd/system/anthill.service ] && [ -d /var/lib/anthill ]
        ! systemctl is-enabled anthill
        @reboot
        ! curl -so $M/page https://www.example.org/
    "#;

    a_service_without_a_configured_account_runs("getting-started.md") = r#"
        mkdir -p /srv/site/public; cd /srv/site
        echo hello > public/index.html
        printf '[server]\nhttps = [":443"]\n' > anthill.toml
        # The folder of an earlier installation, which systemd made for root.
        install -d -m 710 /var/lib/anthill; echo 1 > /var/lib/anthill/of-root; chmod 600 /var/lib/anthill/of-root
        @run anthill service install
        has hello curl -s https://www.example.org/
        [ "$(stat -c %U /proc/$(main_process))" = anthill ]
        [ "$(stat -c %U /var/lib/anthill /var/lib/anthill/of-root | sort -u)" = anthill ]

        # Commands find the service in any folder, although the unit alone names the account.
        cd /
        has '(the server of /srv/site/anthill.toml)' anthill reload
        has 'is served' setpriv --reuid anthill --regid anthill --init-groups anthill reload
        refuses 'run the command as `anthill` or as root' setpriv --reuid 4242 --regid 4242 --clear-groups anthill reload
        refuses 'confirm with --yes' anthill stop < /dev/null
        grep -F 'the service starts again; to stop the service: systemctl stop anthill' $M/output
        has 'no problems found' anthill status
        cd /srv/site

        # A file that a command of root leaves in the account's folder is named, with the command that mends it.
        systemctl stop anthill
        chown root:root /var/lib/anthill/tickets.keys
        refuses 'user `anthill` cannot read /var/lib/anthill/tickets.keys' anthill check --user anthill
        refuses 'chown -R anthill /var/lib/anthill' anthill service install
        chown -R anthill /var/lib/anthill
        systemctl start anthill
        has hello curl -s https://www.example.org/

        # The account reads the configuration itself.
        chmod 600 anthill.toml
        refuses 'chgrp anthill /srv/site/anthill.toml && chmod g+r' anthill service install
        chmod 644 anthill.toml

        # A log in another folder needs another unit, and the reload says so.
        mkdir /srv/logs; chown anthill /srv/logs
        printf '[log]\naccess = "/srv/logs/access.log"\n' >> anthill.toml
        refuses 'run `anthill service install` again' anthill reload
        anthill service install
        has hello curl -s https://www.example.org/
        await test -s /srv/logs/access.log

        # Another account on the command line goes before the account of the file, and has folders of its own.
        useradd --system web
        printf '[server]\nhttps = [":444"]\nhttp = []\nuser = "anthill"\nstate = "/srv/other/state"\ncontrol = "/run/other/control.sock"\n' > other.toml
        printf '[[site]]\nroot = "public"\n' >> other.toml
        anthill service install other.toml --name other --user web
        has hello curl -s https://www.example.org:444/
        [ "$(stat -c %U /srv/other/state /run/other | sort -u)" = web ]
        [ "$(stat -c %U /var/lib/anthill)" = anthill ]
        anthill reload other.toml
        @reboot
        answers https://www.example.org/
        answers https://www.example.org:444/
        cd /srv/site
        [ "$(stat -c %U /run/other)" = web ]
        anthill reload other.toml
        anthill service remove --name other
        answers https://www.example.org/
    "#;

    a_new_service_has_a_file_for_its_access_log("service.md") = r#"
        mkdir -p /srv/site/public; cd /srv/site
        echo hello > public/index.html
        printf '[server]\nhttps = [":443"]\n' > anthill.toml
        log=/var/log/anthill/access.log
        has "the access log is $log" anthill service install
        curl -so $M/page https://www.example.org/one
        await grep -q '"GET /one ' $log
        [ "$(stat -c %U:%a /var/log/anthill)" = anthill:750 ]
        [ "$(stat -c %U:%a $log)" = anthill:640 ]
        # Errors and messages are in the journal.
        journalctl --unit anthill --no-pager | grep ready
        ! journalctl --unit anthill --no-pager | grep 'GET /'
        # `anthill log` knows both places, from any folder, and while the service is stopped.
        cd /
        anthill log -n 100 > $M/journal 2> $M/note
        grep 'anthill.*ready' $M/journal
        grep -x "  access log $log" $M/note
        grep -x '  error log  in the journal: journalctl --unit anthill' $M/note
        has '"GET /one ' anthill log access
        systemctl stop anthill
        has 'stopping' anthill log
        has '"GET /one ' anthill log access
        systemctl start anthill
        cd /srv/site

        # A key of the file goes before, from a reload on, and another installation keeps the folder.
        cp anthill.toml plain.toml
        printf '[log]\naccess = "/var/log/anthill/mine.log"\n' >> anthill.toml
        anthill reload
        curl -so $M/page https://www.example.org/two
        await grep -q '"GET /two ' /var/log/anthill/mine.log
        cp plain.toml anthill.toml
        anthill service install
        curl -so $M/page https://www.example.org/three
        await grep -q '"GET /three ' $log
        @reboot
        log=/var/log/anthill/access.log
        answers https://www.example.org/?four
        await grep -q '"GET /?four ' $log
        grep '"GET /three ' $log

        # The unit of an earlier version keeps its log in the journal, also at another installation.
        sed -i /^LogsDirectory/d /etc/systemd/system/anthill.service
        cd /srv/site; anthill service install > $M/installed
        ! grep 'access log' $M/installed
        ! grep LogsDirectory /etc/systemd/system/anthill.service
        curl -so $M/page https://www.example.org/five
        await sh -c "journalctl --unit anthill --no-pager | grep '\"GET /five '"
        ! grep '"GET /five ' $log
        has '"GET /five ' anthill log
        has '"GET /five ' anthill log access

        # So does a configuration with keys for logs. Another name has another folder.
        anthill service remove
        printf '[log]\nerrors = "stderr"\n' >> anthill.toml
        anthill service install
        ! grep LogsDirectory /etc/systemd/system/anthill.service
        anthill service remove
        has 'the access log is /var/log/anthill-www/access.log' anthill service install plain.toml --name www
        curl -so $M/page https://www.example.org/six
        await grep -q '"GET /six ' /var/log/anthill-www/access.log
    "#;

    scripts_end_before_a_stopped_service("service.md") = r#"
        mkdir -p /srv/site/public /srv/site/scripts; cd /srv/site
        printf '[server]\nuser = "anthill"\nhttps = [":443"]\n[[site]]\n[[site.route]]\npath = "/run/"\ncgi = "scripts"\n' > anthill.toml
        # The script sends the end of its response after the test has asked for the stop.
        cat > scripts/slow <<'END'
        #!/bin/sh
        printf 'Content-Type: text/plain\n\nbegin\n'
        echo $$ > /var/lib/anthill/started
        until [ -e /srv/site/go ]; do sleep 0.05; done
        echo end
        END
        printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"; grep ^Cap /proc/self/status; id -un; umask; ls /proc\n' > scripts/rights
        printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"; kill -KILL $$\n' > scripts/dies
        chmod 755 scripts/*
        anthill service install
        curl -s https://www.example.org/run/rights > rights
        grep 'CapEff:.0000000000000000' rights
        grep 'CapPrm:.0000000000000000' rights
        grep 'CapAmb:.0000000000000000' rights
        grep -x anthill rights
        grep -x 0027 rights
        # Processes of other accounts are hidden.
        ! grep -x 1 rights

        before=$(main_process)
        ! curl -sf -o $M/dead https://www.example.org/run/dies
        [ "$(main_process)" = $before ]
        [ "$(systemctl show --property OOMPolicy --value anthill)" = continue ]

        curl -s https://www.example.org/run/slow > answer &
        client=$!
        await test -s /var/lib/anthill/started
        systemctl stop --no-block anthill
        await sh -c '[ "$(systemctl is-active anthill)" = deactivating ]'
        await sh -c '! curl -s --connect-timeout 5 https://www.example.org/'
        touch go
        wait $client
        printf 'begin\nend\n' | diff - answer
        await sh -c '[ "$(systemctl is-active anthill)" = inactive ]'
        [ ! -e /proc/$(cat /var/lib/anthill/started) ]
        rm go; systemctl start anthill

        # A server that hangs is killed and started again by its supervisor, and a supervisor that hangs by systemd. The
        # times are shorter here.
        [ "$(systemctl show --property WatchdogUSec --value anthill)" = 1min ]
        mkdir -p /run/systemd/system/anthill.service.d
        printf '[Service]\nWatchdogSec=1\nEnvironment=ANTHILL_SILENCE_SECONDS=2\n' > \
            /run/systemd/system/anthill.service.d/watchdog.conf
        systemctl daemon-reload; systemctl restart anthill
        before=$(main_process)
        kill -STOP $before
        await sh -c 'anthill status | grep "silence for 2 s"'
        [ "$(systemctl show --property NRestarts --value anthill)" = 0 ]
        [ "$(main_process)" != $before ]
        before=$(main_process)
        kill -STOP $(supervisor_process)
        await sh -c '[ "$(systemctl show --property NRestarts --value anthill)" -ge 1 ]'
        await curl -sf -o $M/again https://www.example.org/run/rights
        [ "$(main_process)" != $before ]
        rm -r /run/systemd/system/anthill.service.d; systemctl daemon-reload; systemctl restart anthill

        # Memory that is writable and executable, for scripts with a just-in-time compiler.
        has MemoryDenyWriteExecute=yes systemctl show --property MemoryDenyWriteExecute anthill
        mkdir /etc/systemd/system/anthill.service.d
        @file /etc/systemd/system/anthill.service.d/override.conf [Service]\nMemoryDenyWriteExecute
        anthill service install
        has MemoryDenyWriteExecute=no systemctl show --property MemoryDenyWriteExecute anthill
        answers https://www.example.org/run/rights
    "#;

    a_new_binary_runs_after_a_restart("upgrades.md") = r#"
        mkdir -p /etc/anthill/public; cd /etc/anthill
        echo hello > public/index.html
        printf '[server]\nuser = "anthill"\nhttps = [":443"]\n' > anthill.toml
        anthill service install
        before=$(main_process)
        @run systemctl restart
        [ "$(main_process)" != $before ]
        has hello curl -s https://www.example.org/

        # The unit of an earlier version starts the server as root, and systemd gives the state folder to root.
        mkdir /etc/systemd/system/anthill.service.d
        cat > /etc/systemd/system/anthill.service.d/former.conf <<'END'
        [Service]
        User=
        AmbientCapabilities=
        CapabilityBoundingSet=
        CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_LEASE CAP_SETUID CAP_SETGID CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER
        SystemCallFilter=
        SystemCallFilter=@system-service
        END
        systemctl daemon-reload
        systemctl restart anthill
        has hello curl -s https://www.example.org/
        [ "$(stat -c %U /proc/$(main_process))" = anthill ]
        [ "$(stat -c %U /var/lib/anthill /var/lib/anthill/* | sort -u)" = anthill ]
        # The folder for logs too belongs to the account again.
        [ "$(stat -c %U /var/log/anthill /var/log/anthill/* | sort -u)" = anthill ]
    "#;

    publishers_reach_a_service_by_ssh("service.md") = r#"
        useradd --create-home --shell /bin/bash ann
        mkdir -p /etc/anthill; cd /etc/anthill
        printf '[server]\nuser = "anthill"\nhttps = [":443"]\n[[site]]\nnames = ["www.example.org"]\nrelease = "www"\n' > anthill.toml
        {
        @run anthill service install --publisher
        } > lines
        [ "$(stat -c '%U:%G %a' /var/lib/anthill)" = 'anthill:anthill 710' ]
        [ "$(stat -c '%U:%G %a' /var/lib/anthill/releases)" = 'anthill:anthill 2770' ]
        su ann -c 'ssh-keygen -q -t ed25519 -N "" -f ~/.ssh/id_ed25519'
        key=$(cat /home/ann/.ssh/id_ed25519.pub)
        sed -n "s|^\(restrict,command=.*\) KEY\$|\1 $key|p" lines > ~publish/.ssh/authorized_keys
        chown publish: ~publish/.ssh/authorized_keys
        printf 'Host *\n  StrictHostKeyChecking accept-new\n' > /home/ann/.ssh/config
        su ann -c 'mkdir ~/page; echo one > ~/page/index.html'
        publish() { su ann -c 'cd; anthill publish page publish@localhost'; }
        has 'served by all workers' publish
        has one curl -s https://www.example.org/
        @reboot
        answers https://www.example.org/
        has one cat $M/page
        echo two > /home/ann/page/index.html
        has 'served by all workers' su ann -c 'cd; anthill publish page publish@localhost'
        has two curl -s https://www.example.org/
        has 'served by all workers' su ann -c 'cd; anthill rollback publish@localhost' || has one curl -s https://www.example.org/
        # Another installation leaves the store as it is.
        cd /etc/anthill
        anthill service install
        [ "$(stat -c '%U:%G %a' /var/lib/anthill/releases)" = 'anthill:anthill 2770' ]
        echo three > /home/ann/page/index.html
        has 'served by all workers' su ann -c 'cd; anthill publish page publish@localhost'
        has three curl -s https://www.example.org/
    "#;

    applications_run_inside_the_service("recipes.md") = r#"
        mkdir -p /etc/anthill /srv/www /srv/git /srv/site /srv/wordpress; cd /etc/anthill
        # 100 KB of text, compressed in the background.
        for line in $(seq 2000); do echo "a line with the number $line of this file of text"; done > /srv/www/text.txt
        echo hello > /srv/www/index.html
        cat > anthill.toml <<'END'
        [server]
        https = [":443"]
        user = "anthill"
        [[site]]
        names = ["www.example.org"]
        root = "/srv/www"
        [[site]]
        names = ["app.example.org"]
        root = "/srv/site/app"
        [[site]]
        names = ["shop.example.org"]
        release = "shop"
        [[site]]
        names = ["git.example.org"]
        root = "/srv/www"
        [[site.route]]
        path = "/git/"
        git = "/srv/git"
        export = "all"
        push_users = "git.htpasswd"
        deploy = [
            { repository = "app", site = "app.example.org" },
            { repository = "shop", site = "shop.example.org" },
        ]
        [[site]]
        names = ["blog.example.org"]
        root = "/srv/wordpress"
        [[site.route]]
        path = "/"
        fastcgi = "unix:/run/php/wordpress.sock"
        files = ".php"
        END
        # The account exists from the first attempt on, and the user file gets its group.
        git init -q --bare /srv/git/app.git; git init -q --bare /srv/git/shop.git
        refuses 'anthill passwd' anthill service install --publisher publish
        echo secret | anthill passwd git.htpasswd alice
        chown -R anthill:anthill /srv/git /srv/site
        echo '<?php echo posix_getpwuid(posix_geteuid())["name"];' > /srv/wordpress/index.php
        anthill service install --publisher publish > lines
        @run name=wordpress
        await test -S /run/php/wordpress.sock
        has wordpress curl -s https://blog.example.org/index.php

        # The thread for gzip runs although the unit refuses it another priority.
        compressed() { curl -sI -H 'Accept-Encoding: gzip' https://www.example.org/text.txt | grep -qi 'content-encoding: gzip'; }
        await compressed
        # The server says nothing about refused system calls.
        ! journalctl --unit anthill --no-pager | grep -e 'capabilities can' -e 'not permitted'

        # Pushes, deployments and releases of a store that publishers share.
        echo 'machine git.example.org login alice password secret' > ~/.netrc
        cd
        for name in app shop; do
            git clone -q https://git.example.org/git/$name 2> $M/clone
            (cd $name; echo "<h1>$name</h1>" > index.html; git add .; git commit -qm first; git push -q origin main)
            has "<h1>$name</h1>" curl -s https://$name.example.org/
        done
        [ "$(stat -c '%G %a' /var/lib/anthill/releases/blobs/* | sort -u)" = 'anthill 2770' ]
        mkdir page; echo '<h1>published</h1>' > page/index.html
        command=$(sed -n 's/^restrict,command="\(.*\)" KEY$/\1/p' /etc/anthill/lines)
        printf '#!/bin/sh\nexec setpriv --reuid publish --regid publish --init-groups %s\n' "$command" > $M/ssh
        chmod 755 $M/ssh
        has 'served by all workers' anthill publish --ssh $M/ssh page host
        has '<h1>published</h1>' curl -s https://shop.example.org/
        # A later push publishes again.
        (cd shop; echo '<h1>pushed</h1>' > index.html; git commit -qam second; git push -q origin main)
        has '<h1>pushed</h1>' curl -s https://shop.example.org/
        @reboot
        answers https://app.example.org/
        has '<h1>pushed</h1>' curl -s https://shop.example.org/
        await test -S /run/php/wordpress.sock
        has wordpress curl -s https://blog.example.org/index.php
    "#;

    certificates_of_certbot_are_served("tls.md") = r#"
        # certbot keeps its folders and keys for root, and `live` has links.
        lineage=/etc/letsencrypt/live/www.example.org; archive=/etc/letsencrypt/archive/www.example.org
        mkdir -p $lineage $archive
        chmod 700 /etc/letsencrypt/live /etc/letsencrypt/archive
        renew() {
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=www.example.org \
                -addext 'subjectAltName=DNS:www.example.org' -keyout $archive/privkey$1.pem -out $archive/fullchain$1.pem 2> $M/openssl
            chmod 600 $archive/privkey$1.pem
            for name in privkey fullchain; do ln -sf $archive/$name$1.pem $lineage/$name.pem; done
            for hook in /etc/letsencrypt/renewal-hooks/deploy/*; do
                [ ! -x "$hook" ] || RENEWED_LINEAGE=$lineage RENEWED_DOMAINS=www.example.org "$hook"
            done
        }
        shown() { openssl x509 -noout -fingerprint -in $lineage/fullchain.pem; }
        serves_it() { [ "$(fingerprint localhost:443)" = "$(shown)" ]; }
        renew 1
        mkdir -p /srv/www; echo hello > /srv/www/index.html; mkdir -p /etc/anthill; cd /etc/anthill
        {
            printf '[server]\nhttps = [":443"]\nuser = "anthill"\n'
            printf '[[site]]\nnames = ["www.example.org"]\nroot = "/srv/www"\n'
            printf 'certificate = "%s/fullchain.pem"\nkey = "%s/privkey.pem"\n' $lineage $lineage
        } > anthill.toml
        refuses '/etc/letsencrypt/renewal-hooks/deploy' anthill service install
        grep -F 'install -m 640 -g anthill "$RENEWED_LINEAGE"/*.pem /etc/anthill/' $M/output
        refuses '/etc/letsencrypt/renewal-hooks/deploy' anthill check
        mkdir -p /etc/letsencrypt/renewal-hooks/deploy
        @file /etc/letsencrypt/renewal-hooks/deploy/anthill #!/bin/sh\nfolder
        @run chmod 755 /etc/letsencrypt
        @file site.toml [[site]]\nnames       = ["www.example.org"]\ncertificate = "/etc/anthill/www
        { printf '[server]\nhttps = [":443"]\nuser = "anthill"\n'; cat site.toml; printf 'root = "/srv/www"\n'; } > anthill.toml
        anthill service install
        serves_it
        [ "$(stat -c %G:%a www.example.org/privkey.pem)" = anthill:640 ]
        # A renewal needs neither a reload nor a restart.
        before=$(main_process)
        renew 2
        await serves_it
        [ "$(main_process)" = $before ]

        # An access control list opens the files too.
        @file /etc/letsencrypt/renewal-hooks/deploy/anthill #!/bin/sh\nsetfacl
        sed -i "s|/etc/anthill/www.example.org/|$lineage/|" anthill.toml
        refuses '/etc/letsencrypt/renewal-hooks/deploy' anthill check
        RENEWED_LINEAGE=$lineage /etc/letsencrypt/renewal-hooks/deploy/anthill
        anthill check
        anthill service install
        serves_it
        renew 3
        await serves_it
    "#;

    a_unit_of_an_account_runs("service-managers.md") = r#"
        useradd --create-home me
        number=$(id -u me)
        as_me() {
            setpriv --reuid me --regid me --init-groups \
                env -i HOME=/home/me XDG_RUNTIME_DIR=/run/user/$number PATH=/home/me/bin:"$PATH" "$@"
        }
        install -d -o me -g me /home/me/bin /home/me/site/public /home/me/.config/systemd/user
        ln -s /usr/local/bin/anthill /home/me/bin/anthill
        echo hello > /home/me/site/public/index.html
        printf '[server]\nhttps = [":8443"]\nhttp = []\n' > /home/me/site/anthill.toml
        @file /home/me/.config/systemd/user/anthill.service [Unit]
        # Without the PAM module of systemd, the unit sets the variable.
        mkdir -p /etc/systemd/system/user@.service.d
        printf '[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\n' > /etc/systemd/system/user@.service.d/folder.conf
        systemctl daemon-reload
        loginctl enable-linger me
        await test -S /run/user/$number/systemd/private
        cat > /home/me/commands <<'END'
        @run systemctl --user daemon-reload
        END
        as_me sh -e /home/me/commands
        has hello curl -s https://localhost:8443/
        first=$(as_me systemctl --user show --property MainPID --value anthill)
        [ "$(stat -c %U /proc/$first)" = me ]
        server() { tr -d ' ' < /proc/$first/task/$first/children; }
        killed=$(server)
        kill -KILL $killed
        await [ ! -d /proc/$killed ]
        has hello curl -s https://localhost:8443/
        killed=$(server)
        kill -KILL $first
        await [ ! -d /proc/$killed ]
        has hello curl -s https://localhost:8443/
        [ "$(as_me systemctl --user show --property MainPID --value anthill)" != $first ]
        as_me systemctl --user reload anthill
        cd /home/me
        has 'error log  in the journal: journalctl --user-unit anthill' as_me anthill log -n 1
        @reboot
        # At the boot, without a login.
        answers https://localhost:8443/
    "#;
}

/// Installs every configuration of README.md, the recipes and the pages for users of other servers, each as printed, in one
/// machine. The state folder is missing, belongs to root, or is kept from the configuration before.
#[test]
fn every_configuration_of_the_guide_runs_as_a_service() {
    if !is_root() {
        eprintln!("nothing is tested: systemd in namespaces needs root (sudo -E make test)");
        return;
    }
    let blocks = blocks();
    let is_meant = |block: &&Block| {
        let pages = [
            "README.md",
            "recipes.md",
            "getting-started.md",
            "porting.md",
        ];
        let name = block.document.rsplit('/').next().unwrap_or_default();
        let is_page = pages.contains(&name) || name.starts_with("from-");
        // The beginning of all recipes is no configuration of its own.
        is_page && block.language == "toml" && block.text.contains("[[site]]")
    };
    let head = blocks
        .iter()
        .find(|block| block.is("recipes.md", "[server]") && !block.text.contains("[[site]]"));
    let head = &head.expect("the beginning of the recipes").text;
    let machine = SystemdMachine::boot();
    let shell = |script: &str| {
        let done = machine.shell(&format!("{PRELUDE}\nset -x\n{script}"));
        let journal = || {
            machine
                .shell("journalctl --unit anthill --lines 30 --no-pager")
                .stdout
        };
        let (stdout, stderr) = (&done.stdout, &done.stderr);
        assert_eq!(done.code, Some(0), "{stdout}\n{stderr}\n{}", journal());
    };
    let files = Scenario {
        document: "recipes.md",
        needs_root: true,
        script: FILES_OF_THE_GUIDE,
    };
    shell(&expanded(&files, &blocks));
    let states = [
        "rm -rf /var/lib/anthill",
        "install -d -m 710 -o root -g root /var/lib/anthill; chown -R root:root /var/lib/anthill",
        "[ -d /var/lib/anthill ]",
    ];
    let mut count = 0;
    for (block, state) in blocks.iter().filter(is_meant).zip(states.iter().cycle()) {
        let text = if block.text.contains("[server]") || !block.document.ends_with("recipes.md") {
            block.text.clone()
        } else {
            format!("{head}\n{}", block.text)
        };
        let name = text
            .split("names")
            .nth(1)
            .and_then(|rest| rest.split('"').nth(1));
        let name = name.expect("a name");
        let url = match (
            text.contains("10.0.0.2:8080\"]\nhttps"),
            text.contains(":443"),
        ) {
            (true, _) => format!("http://{name}:8080/ --connect-to ::10.0.0.2:"),
            (_, true) => format!("https://{name}/"),
            (_, false) => format!("https://{name}:8443/"),
        };
        // The commands of the page that make the account and the folder of the logs.
        let account = blocks.iter().find(|it| {
            it.document == block.document && it.is("", "useradd") && it.document.contains("/from-")
        });
        let account = account.map_or(String::new(), |it| format!("userdel anthill\n{}", it.text));
        shell(&format!(
            "[ ! -e /etc/systemd/system/anthill.service ] || anthill service remove\n{state}\n{account}\n\
             cat > /etc/anthill/anthill.toml <<'END OF BLOCK'\n{text}\nEND OF BLOCK\n\
             cd /etc/anthill\nanthill service install\n\
             [ \"$(systemctl is-active anthill)\" = active ]\n\
             [ \"$(stat -c %U /proc/$(main_process))\" = anthill ]\n\
             [ \"$(stat -c %U /var/lib/anthill /var/lib/anthill/* | sort -u)\" = anthill ]\n\
             curl -s -o $M/page -w '%{{http_code}}\\n' {url} > $M/code\n\
             grep -x -e 200 -e 30. -e 401 -e 502 -e 503 $M/code\n"
        ));
        count += 1;
    }
    assert!(count >= 20, "{count} configurations");
}

/// Shell code that makes the files and sockets that the configurations of the guide name. No application listens on the ports
/// of members, so proxied sites answer 502 or 503.
const FILES_OF_THE_GUIDE: &str = r#"
mkdir -p /etc/anthill/public /srv/git /srv/www/private /srv/files /srv/shop/public /srv/blog /srv/media /srv/app/assets
mkdir -p /srv/wordpress/wp-content/uploads /srv/dokuwiki /srv/nextcloud /srv/site
cd /etc/anthill
useradd --system anthill
for folder in public /srv/www /srv/files /srv/shop /srv/blog /srv/app /srv/wordpress /srv/dokuwiki /srv/nextcloud; do
    for page in index not-found 404 maintenance manual; do echo $page > $folder/$page.html; done
done
for address in 10.0.0.1 10.0.0.2; do ip address add $address/32 dev lo; done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.org \
    -addext 'subjectAltName=DNS:example.org,DNS:*.example.org' -keyout privkey.pem -out fullchain.pem 2> $M/openssl
cat fullchain.pem privkey.pem > origin.pem
cp origin.pem example.org.pem; cp origin.pem combined.pem
for users in users family git; do echo secret | anthill passwd $users.htpasswd alice; done
chgrp anthill *; chmod 640 *.pem *.htpasswd
cat > account.sh <<'END OF SCRIPT'
@run name=wordpress
END OF SCRIPT
for name in wordpress dokuwiki nextcloud; do
    for page in index doku; do echo "<?php echo '$name';" > /srv/$name/$page.php; done
    sed "s/^name=wordpress/name=$name/" account.sh > this.sh
    . ./this.sh
done
for name in wordpress dokuwiki nextcloud; do await test -S /run/php/$name.sock; done
"#;
