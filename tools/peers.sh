#!/bin/sh
# Installs and builds the other servers for `anthill bench`: Debian's packages, and builds into target/peers
# (or $ANTHILL_PEERS, where the benchmark also looks). The script reports a server that cannot be installed
# and continues with the other servers.
set -eu
. "$(dirname "$0")/setup.sh"

setup build peers
peers=${ANTHILL_PEERS:-target/peers}
mkdir -p "$peers/bin"
peers=$(cd "$peers" && pwd)
missed=

# built NAME COMMAND…: runs the command, prints the result, and records a failure.
built() {
    name=$1
    shift
    say "building $name"
    "$@" || missed="$missed $name"
}

# go_program FOLDER NAME: builds a Go program of bench/programs.
go_program() (
    cd "bench/programs/$1"
    "$go" build -trimpath -o "$peers/bin/$2" .
)

actix() {
    cargo build --quiet --locked --release --manifest-path bench/programs/actix/Cargo.toml \
        --target-dir "$peers/build" &&
        cp "$peers/build/release/anthill-bench-actix" "$peers/bin/"
}

usable_go
built go-nethttp go_program go-nethttp anthill-bench-nethttp
built go-fasthttp go_program go-fasthttp anthill-bench-fasthttp
built actix actix
built static-web-server cargo install --quiet --locked --root "$peers" static-web-server --version 2.44.1
# binserve has no published package, so the build needs a network with access to the repository.
built binserve cargo install --quiet --root "$peers" --git https://github.com/mufeedvh/binserve --rev 1e32f94

if [ -n "$missed" ]; then say "not installed:$missed"; fi
say 'anthill bench list lists all servers'
