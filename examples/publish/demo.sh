#!/bin/sh
# Publishes examples/publish/site on two hosts by ssh: demo.sh [ANTHILL [FOLDER]]. Both hosts are on the loopback
# interface: each has an SSH server of its own, under your account, and a web server. All servers end with the script.
set -eu

example=$(cd "$(dirname "$0")" && pwd)
anthill=${1:-$(command -v anthill)}
# sshd runs the program in the home folder of the account.
case $anthill in
/*) ;;
*) anthill=$PWD/$anthill ;;
esac
folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
sshd=$(command -v sshd || echo /usr/sbin/sshd)
[ -x "$sshd" ] || { echo 'demo.sh: sshd is missing: Debian has it in the package openssh-server' >&2; exit 1; }
# An SSH server of root needs this folder.
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd

servers=
stop() {
    trap - EXIT INT TERM
    for server in $servers; do kill "$server" 2>/dev/null || true; done
    wait
}
trap stop EXIT INT TERM

# wait_for WHAT COMMAND…: runs a command until it succeeds.
wait_for() {
    what=$1; shift
    for _ in $(seq 300); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    echo "demo.sh: $what did not start; $folder has the logs" >&2
    exit 1
}

# free_port: prints a port that no server uses.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# host NAME [OPTION…]: starts a host with a web server and an SSH server. The options go to `anthill receive`.
host() {
    name=$1; shift
    home=$folder/$name
    mkdir -p "$home"
    sed "s/PORT/$(free_port)/" "$example/anthill.toml" >"$home/anthill.toml"
    "$anthill" serve "$home/anthill.toml" >"$home/anthill.out" 2>&1 &
    servers="$servers $!"
    wait_for "the web server of $name" grep -q '^ready' "$home/anthill.out"
    ssh-keygen -q -t ed25519 -N '' -f "$home/host_key"
    line=$("$anthill" receive www --store "$home/state/releases" --publisher demo "$@" --key-line)
    echo "${line%KEY}$(cat "$folder/key.pub")" >"$home/authorized_keys"
    port=$(free_port)
    "$sshd" -D -e -f /dev/null -o "ListenAddress=127.0.0.1:$port" -o "HostKey=$home/host_key" \
        -o "AuthorizedKeysFile=$home/authorized_keys" -o StrictModes=no -o PidFile=none 2>"$home/sshd.log" &
    servers="$servers $!"
    cat >>"$folder/ssh_config" <<END
Host $name
    HostName 127.0.0.1
    Port $port
    IdentityFile "$folder/key"
    IdentitiesOnly yes
    BatchMode yes
    StrictHostKeyChecking no
    LogLevel ERROR
    UserKnownHostsFile "$folder/known_hosts"
END
    wait_for "the SSH server of $name" ssh -F "$folder/ssh_config" "$name" </dev/null
}

# show: prints the page of each host.
show() {
    for name in one two; do
        url=$(sed -n 's|^ *\(http://[^ ]*\).*|\1|p' "$folder/$name/anthill.out" | head -n 1)
        echo "$name at $url says: $(curl -s "$url" | sed -n 's|.*<h1>\(.*\)</h1>.*|\1|p')"
    done
}

# run COMMAND…: prints and runs a command of `anthill`.
run() {
    printf '\n$ anthill'
    printf ' %s' "$@"
    echo
    command=$1; shift
    "$anthill" "$command" --ssh "ssh -F '$folder/ssh_config'" "$@"
}

: >"$folder/ssh_config"
ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
host one
host two --quota 40000
export XDG_CACHE_HOME="$folder/cache"
mkdir "$folder/laptop"
cp -R "$example/site" "$folder/laptop/"
cd "$folder/laptop"

run publish site one two
show
sed 's/First/Second/' "$example/site/index.html" >site/index.html
run publish site one two
show

echo
echo 'The next release is larger than the quota of the second host, so no host changes:'
head -c 30000 /dev/urandom >site/large.bin
! run publish site one two || { echo 'demo.sh: the release was not refused' >&2; exit 1; }
show

run rollback one
run releases one
show
