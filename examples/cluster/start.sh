#!/bin/sh
# Starts a balancer and four members on addresses of the loopback interface, in a folder with a copy of the
# example: start.sh [ANTHILL [FOLDER]]. Ctrl-C ends all five servers.
set -eu

example=$(cd "$(dirname "$0")" && pwd)
anthill=${1:-anthill}
# The printed commands run in another folder.
case $anthill in
/*) ;;
*/*) anthill=$PWD/$anthill ;;
esac
folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

servers=
stop() {
    trap - EXIT INT TERM
    for server in $servers; do kill "$server" 2>/dev/null || true; done
    wait
}
trap stop EXIT INT TERM

# start CONFIGURATION: starts a server in the folder of its configuration, and waits until the server is ready.
start() {
    out=${1%.toml}.out
    : >"$out"
    "$anthill" serve "$1" >>"$out" 2>&1 &
    servers="$servers $!"
    until grep -q '^ready' "$out"; do
        if ! kill -0 $! 2>/dev/null; then
            echo "start.sh: the server of $1 ended:" >&2
            cat "$out" >&2
            exit 1
        fi
        sleep 0.1
    done
}

for n in 1 2 3 4; do
    mkdir -p "$folder/node$n"
    cp -R "$example/public" "$folder/node$n/"
    sed "s/NUMBER/$n/g" "$example/node.toml" >"$folder/node$n/node.toml"
    start "$folder/node$n/node.toml"
done
cp "$example/balancer.toml" "$folder/"
start "$folder/balancer.toml"

cat <<END
The balancer rpicluster serves http://localhost:8080, and the members 127.0.0.11 to 127.0.0.14, port 8080.
The folder is $folder.

Things to try in another terminal:

  cd '$folder'
  for i in 1 2 3 4; do curl -sI http://localhost:8080/ | grep X-Node; done
  '$anthill' balancer list balancer.toml
  '$anthill' balancer drain rpicluster 127.0.0.11:8080 balancer.toml
  '$anthill' balancer enable rpicluster 127.0.0.11:8080 balancer.toml
  siege -b -c200 -t10s http://localhost:8080/

New pages for all members, one member after another:

  cp -R node1/public new-pages && echo '<p>New</p>' >>new-pages/index.html
  sh '$example/sync.sh' new-pages '$anthill'

Ctrl-C ends all servers.
END
wait
