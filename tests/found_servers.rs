//! Commands that find the server from any folder: the choice among running servers and installed services, the
//! confirmation of commands with an effect, and servers of other users.
//!
//! The scripts run in namespaces of their own, with their own lists of processes and sockets, so no server of another test is
//! in sight.

use crate::guide_examples::run_in_machine;
use crate::lifecycle::is_root;

/// Shell code before each script: folders with two configurations and one without, and shell functions.
const PRELUDE: &str = r#"
mount -t proc proc /proc
chmod 755 /run /srv /var/lib
# The files of the test move, so that /tmp has no folder for sockets of the machine.
mkdir /srv/m; mount --rbind "$M" /srv/m; M=/srv/m; export PATH="$M/bin:$PATH"
cd /; mount -t tmpfs -o mode=1777 tmpfs /tmp
for name in a b; do
    mkdir -p /srv/$name/public; echo "$name" > /srv/$name/public/index.html
    {
        printf '[server]\nhttps = ["127.0.0.1:0"]\nhttp = []\nworkers = 1\n'
        printf '[[site]]\nnames = ["*"]\nroot = "public"\n'
    } > /srv/$name/anthill.toml
done
mkdir /srv/none

# Fails unless a command fails with a text in its output: refuses TEXT COMMAND...
refuses() {
    text=$1; shift
    ! "$@" > "$M/output" 2>&1 < /dev/null || { echo "$* succeeded"; return 1; }
    grep -qFe "$text" "$M/output" || { echo "no $text in the output of $*:"; cat "$M/output"; return 1; }
}

# Runs a command on a terminal, and answers its question: answering TEXT COMMAND...
answering() { python3 "$M/terminal.py" "$@"; }

cat > "$M/terminal.py" <<'END'
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
text, is_answered = b"", False
try:
    while part := os.read(terminal, 1000):
        text += part
        if b"[y/N]" in text and not is_answered:
            os.write(terminal, sys.argv[1].encode() + b"\n")
            is_answered = True
except OSError:
    pass
print(text.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END

# Waits until a command succeeds, for at most a minute.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || return 1
        sleep 0.05
    done
}
"#;

/// Runs a script, whose lines are indented by 8 spaces.
fn run(script: &str) {
    let lines = script
        .lines()
        .map(|line| line.strip_prefix("        ").unwrap_or(line));
    let script = lines.collect::<Vec<_>>().join("\n");
    let done = run_in_machine(&format!("{PRELUDE}\nset -x\n{script}\n"));
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
}

#[test]
fn the_only_server_is_found_from_any_folder() {
    run(r#"
        cd /srv/a
        printf '[manager]\nlisten = "127.0.0.1:0"\n' >> anthill.toml
        anthill serve
        server=$!
        cd /srv/none
        has '(the server of /srv/a/anthill.toml)' anthill reload
        has 'configuration 3 is served' anthill reload
        has 'log files are open again' anthill reopen
        has views anthill hits
        anthill balancer > balancers 2> note
        grep -x '(the server of /srv/a/anthill.toml)' note
        anthill manager login > login 2> note
        grep '^http.*/login' login || { cat login; false; }
        anthill status > status; anthill requests > requests; anthill metrics > metrics
        grep '^anthill_' metrics

        # Commands with an effect name the server, and need a confirmation.
        refuses 'confirm with --yes' anthill purge '*' '/*'
        grep 'server of /srv/a/anthill.toml' "$M/output"
        anthill purge --yes '*' '/*'
        refuses 'confirm with --yes' anthill stop
        answering n "$M/bin/anthill" stop > answer && false
        grep '/srv/a/anthill.toml' answer; grep 'the server goes on' answer
        kill -0 $server
        answering y "$M/bin/anthill" purge '*' '/*'
        answering y "$M/bin/anthill" stop > answer
        grep stopped answer
        wait $server
        refuses 'no anthill is running' anthill reload
        refuses 'no anthill is running' anthill stop --yes
    "#);
}

#[test]
fn several_servers_are_listed_and_a_folder_means_its_own() {
    run(r#"
        cd /srv/a; anthill serve; a=$!
        cd /srv/b; anthill serve; b=$!
        cd /srv/none
        for command in reload reopen stop 'stop --yes' hits balancer 'manager login' 'purge --yes * /*' status; do
            set -f; refuses '2 servers run on this machine' anthill $command; set +f
            grep -e '--control .*  for /srv/a/anthill.toml' "$M/output"
        done
        control=$(sed -n 's|.*--control \(.*\)  for /srv/b/anthill.toml|\1|p' "$M/output")
        has 'is served' anthill reload --control "$control"
        has 'is served' anthill reload /srv/b
        # A served folder without a configuration means its own server too.
        mkdir /srv/c; cd /srv/c
        anthill serve --https 127.0.0.1:0 --http off; c=$!
        has stopped anthill stop; wait $c

        # A folder with a configuration means no other server, running or not.
        cd /srv/a
        has 'configuration 2 is served' anthill reload
        has stopped anthill stop; wait $a
        for command in reload stop 'stop --yes' status; do
            refuses 'a server runs on this machine, but not with the configuration of this folder' anthill $command
            grep -e '--control .*  for /srv/b/anthill.toml' "$M/output"
        done
        kill -0 $b
        cd /srv/none
        has '(the server of /srv/b/anthill.toml)' anthill stop --yes; wait $b
    "#);
}

#[test]
fn a_half_written_configuration_hides_no_running_server() {
    run(r#"
        cd /srv/a
        sed -i 's|^workers = 1|workers = 1\nstate = "state"|' anthill.toml
        cp anthill.toml whole.toml
        anthill serve; a=$!
        cd /srv/none; mkdir -p /srv/b

        # The keys behind a mistake are not read, or name another socket than the running server has, or the file is no text.
        half() { printf '[server]\nhttps = ["127.0.0.1:0"\n' > /srv/a/anthill.toml; }
        moved() { sed 's|"state"|"elsewhere"|' /srv/a/whole.toml > /srv/a/anthill.toml; }
        binary() { printf '\377' | cat - /srv/a/whole.toml > /srv/a/anthill.toml; }
        for file in half moved binary; do
            $file
            cd /srv/a
            has ', up ' anthill status
            anthill balancer > balancers 2> note; ! grep 'the server of' note
            cd /srv/none
            has ', up ' anthill status /srv/a
            has ', up ' anthill status /srv/a/anthill.toml
        done
        half; cd /srv/a
        refuses 'anthill.toml:2:' anthill reload
        refuses 'anthill.toml:2:' anthill reload /srv/a
        # A folder names its server, so nothing has to be confirmed.
        has stopped anthill stop; wait $a

        # Without a server, the mistake is told together with the place.
        for command in status reload stop 'status /srv/a'; do
            refuses 'no anthill is running' anthill $command
            grep 'anthill.toml:2:' "$M/output"
        done
        cd /srv/b; anthill serve; b=$!
        cd /srv/a
        refuses 'but not with the configuration of this folder' anthill status
        grep 'anthill.toml:2:' "$M/output"
        cd /srv/b; has stopped anthill stop; wait $b
    "#);
}

#[test]
fn a_name_goes_before_a_folder_of_the_same_name() {
    run(r#"
        cd /srv/a
        printf '[[site.route]]\npath = "/app/"\nbalance = "app"\n' >> anthill.toml
        printf '[[balancer]]\nname = "app"\nmembers = ["http://127.0.0.1:9"]\n' >> anthill.toml
        mkdir app www.example.org
        anthill serve; a=$!
        has '127.0.0.1:9 ' anthill balancer list app
        has '127.0.0.1:9 ' anthill balancer list app .
        has '127.0.0.1:9 ' anthill balancer list .
        anthill balancer list app > list 2> note; ! grep folder note
        anthill balancer history app

        # A folder with a server of its own is told.
        cp /srv/b/anthill.toml app/
        anthill balancer list app > list 2> note
        grep '127.0.0.1:9 ' list
        grep './app is the folder of the same name' note
        refuses 'no anthill is running with this configuration' anthill balancer list ./app

        # A word that no server knows is a place.
        cd /srv
        has '127.0.0.1:9 ' anthill balancer list a
        has '127.0.0.1:9 ' anthill balancer list app a
        has views anthill hits a
        has views anthill hits '*' a
        has views anthill hits /srv/a/anthill.toml
        refuses 'so `b` was read as a place' anthill balancer list b
        cd /srv/a; has stopped anthill stop; wait $a
    "#);
}

#[test]
fn logs_are_printed_and_followed_from_any_folder() {
    run(r#"
        # Serves a folder, and sets the port.
        serve() {
            cd /srv/$1; anthill serve; server=$!
            port=$(sed -n 's|.*https://localhost:\([0-9]*\).*|\1|p' "$M/error.log")
            cd /srv/none
        }
        get() { curl -sko "$M/page" https://127.0.0.1:$port/$1; }
        mkdir /srv/a/logs
        printf '[log]\naccess = "logs/access.log"\nerrors = "logs/errors.log"\n' >> /srv/a/anthill.toml
        serve a
        log=/srv/a/logs/access.log
        get one; await grep -q '"GET /one ' $log
        anthill log > out 2> note
        grep -x "==> $log <==" out; grep '"GET /one ' out; grep -x '==> /srv/a/logs/errors.log <==' out
        grep -x 'logs of /srv/a/anthill.toml:' note; grep -x "  access log $log" note
        get one; get one; await sh -c "[ \$(wc -l < $log) = 3 ]"
        [ "$(anthill log access -n 2 | wc -l)" = 2 ]
        refuses '--lines: `x` is not a number of lines' anthill log -n x

        # New lines follow, also after another program renamed the file.
        anthill log -f -n 0 access > followed 2> note &
        follower=$!
        until grep -q '"GET /two ' followed; do get two; sleep 0.05; done
        ! grep '"GET /one ' followed
        mv $log $log.1; anthill reopen
        get three; await grep -q '"GET /three ' followed
        kill $follower; wait $follower || true

        # A stopped server has logs too, and its folder or file names them.
        anthill stop --yes; wait $server
        has '"GET /three ' anthill log access /srv/a
        (cd /srv/a; has '"GET /three ' anthill log access)
        refuses 'no anthill is running, and no service is installed' anthill log
        # A mistake in the configuration hides no log.
        echo 'unknown = 1 = 2' >> /srv/a/anthill.toml
        has '"GET /three ' anthill log access /srv/a
        rm $log
        refuses "$log does not exist" anthill log access /srv/a

        # The shell directs the streams of a server into files.
        serve b
        get four; await grep -q '"GET /four ' "$M/access.log"
        has '"GET /four ' anthill log access
        has "==> $M/error.log <==" anthill log
        kill $server; wait $server || true
        # Nothing reads a pipe again.
        cd /srv/b; "$M/bin/anthill" serve 2>&1 | cat > "$M/piped" &
        await grep -q ^ready "$M/piped"
        cd /srv/none
        refuses 'no log can be read' anthill log
        grep 'a pipe to another program' "$M/output"; grep 'errors = "errors.log"' "$M/output"
    "#);
}

#[test]
fn an_installed_service_is_found_by_root_and_by_its_account() {
    if !is_root() {
        return;
    }
    run(r#"
        rm /usr/local/bin/anthill; cp "$M/bin/anthill" /usr/local/bin/
        anthill() { /usr/local/bin/anthill "$@"; }
        as() { setpriv --reuid "$1" --regid "$1" --clear-groups env HOME=/ /usr/local/bin/anthill "$2"; }
        cd /srv/a; anthill service install
        cd /srv/none
        has '(the server of /srv/a/anthill.toml)' anthill reload
        has 'configuration 3 is served' as anthill reload
        refuses 'run the command as `anthill` or as root (sudo)' as 4242 reload
        refuses 'confirm with --yes' anthill stop
        # A second server of root is another choice.
        cd /srv/b
        "$M/bin/anthill" serve > "$M/b.log" 2>&1 &
        b=$!
        await grep -q ^ready "$M/b.log"
        cd /srv/none
        refuses '2 servers run on this machine' anthill reload
        refuses '2 servers have logs on this machine' anthill log
        kill $b; wait $b || true

        # The script of the service directs the error log into a file.
        port=$(sed -n 's|.*https://localhost:\([0-9]*\).*|\1|p' /var/log/anthill.log)
        curl -sko "$M/page" https://127.0.0.1:$port/
        await grep -q '"GET / ' /var/log/anthill/access.log
        has '==> /var/log/anthill/access.log <==' anthill log
        has ready anthill log errors
        refuses 'help: run the command as the server' as 4242 log
        has stopped anthill stop --yes
        await sh -c '! /usr/local/bin/anthill status > /dev/null 2>&1'
        refuses 'the service anthill is stopped' anthill reload
        grep '/etc/init.d/anthill start' "$M/output"
        has '"GET / ' anthill log access
        has ready anthill log errors
    "#);
}

/// A server of root with an account that its configuration names, and no service.
#[test]
fn a_server_with_the_account_of_roots_configuration_is_found() {
    if !is_root() {
        return;
    }
    run(r#"
        cd /srv/a
        sed -i 's/^workers.*/workers = 1\nuser = "anthill"/' anthill.toml
        anthill serve
        cd /srv/none
        has '(the server of /srv/a/anthill.toml)' anthill reload
        # If the account can change the configuration, the account may have named itself.
        chown anthill /srv/a/anthill.toml
        refuses 'a server of the user `anthill` runs on this machine' anthill reload
        has 'is served' anthill reload /srv/a
    "#);
}

#[test]
fn root_never_speaks_to_the_socket_of_another_user() {
    if !is_root() {
        return;
    }
    run(r#"
        mkdir /srv/bob; chown 4242 /srv/bob
        # A program of the other user with the name of the server, which claims to serve root's configuration.
        cp "$(readlink -f "$(command -v python3)")" /srv/bob/anthill
        cat > /srv/bob/fake.py <<'END'
        import os, socket, sys
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        os.chmod(sys.argv[1], 0o777)
        listener.listen()
        open("/srv/bob/ready", "w").close()
        while True:
            connection, _ = listener.accept()
            open("/srv/bob/got", "ab").write(b"a connection")
            connection.sendall(b"ok\nstopped\n")
            connection.close()
        END
        bob() { setpriv --reuid 4242 --regid 4242 --clear-groups "$@"; }
        fake() {
            rm -f /srv/bob/ready
            bob /srv/bob/anthill /srv/bob/fake.py "$1" serve /srv/a/anthill.toml &
            await test -e /srv/bob/ready
        }
        fake /srv/bob/control.sock
        cd /srv/none
        for command in stop 'stop --yes' reload status; do
            refuses 'a server of the user `4242` runs on this machine' anthill $command
        done
        # The server of root is the only choice beside.
        cd /srv/a; anthill serve; a=$!
        cd /srv/none
        has '(the server of /srv/a/anthill.toml)' anthill reload
        has stopped anthill stop --yes; wait $a

        # The folder for sockets in /tmp, made by the other user, with the names of the sockets of two folders.
        bob mkdir /tmp/anthill-0
        for folder in none a; do
            name=$(python3 -c '
        import sys
        key = 0xcbf29ce484222325
        for byte in sys.argv[1].encode(): key = (key ^ byte) * 0x100000001b3 % 2 ** 64
        print("%016x.sock" % key)' /srv/$folder)
            fake /tmp/anthill-0/$name
            cd /srv/$folder
            for command in stop 'stop --yes' reload; do
                refuses 'in a folder of `4242`' anthill $command || refuses 'user `4242` runs' anthill $command
            done
            refuses 'in a folder of `4242`' anthill stop /srv/$folder
        done
        # The same for another user.
        bob mkdir /tmp/anthill-4243; fake /tmp/anthill-4243/$name
        cd /srv/a
        refuses 'permission denied for the control socket /var/lib' setpriv --reuid 4243 --regid 4243 --clear-groups env HOME=/ anthill stop
        # Named, the folder of another user is not used either while any user could have made it.
        refuses 'in a folder of `4242`' anthill stop --control /tmp/anthill-0/$name
        # A configuration in a folder of all users.
        printf '[server]\ncontrol = "/srv/bob/control.sock"\n' > /tmp/anthill.toml; chown 4242 /tmp/anthill.toml
        cd /tmp
        refuses 'anthill.toml of this folder belongs to `4242`' anthill stop
        refuses 'anthill.toml of this folder belongs to `4242`' anthill stop --yes
        refuses 'anthill.toml of this folder belongs to `4242`' anthill log
        # The server of root is not offered while its socket is in a folder of the other user, who may exchange the socket.
        sed 's|^workers|control = "/srv/bob/of-root.sock"\nworkers|' /srv/a/anthill.toml > /srv/b/anthill.toml
        cd /srv/b; anthill serve; b=$!
        cd /srv/none
        refuses 'the control socket is not used' anthill stop --yes
        kill $b; wait $b || true
        # A link of the other user that leads to the socket of a server of root.
        cd /srv/a; anthill serve; a=$!
        control=$(anthill status --json > /dev/null; ls /var/lib/anthill/*.sock)
        bob ln -s "$control" /srv/bob/link.sock
        refuses 'the control socket is not used' anthill stop --control /srv/bob/link.sock
        [ ! -e /srv/bob/got ]
        has stopped anthill stop; wait $a
    "#);
}
