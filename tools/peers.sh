#!/bin/sh
# The servers that `anthill bench` measures beside ours: Debian's packages, and what has to be built,
# into target/peers (or $ANTHILL_PEERS, where the benchmark looks too). One that can't be had is said,
# and the others are gone on with.
set -eu
. "$(dirname "$0")/setup.sh"

setup build peers
peers=${ANTHILL_PEERS:-target/peers}
mkdir -p "$peers/bin"
peers=$(cd "$peers" && pwd)
missed=

# built NAME COMMAND…: says that it is built, and notes it if that fails.
built() {
    name=$1
    shift
    say "building $name"
    "$@" || missed="$missed $name"
}

# go_program FOLDER NAME: a program of bench/programs in Go.
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
# No published package, so it depends on a network that reaches its repository.
built binserve cargo install --quiet --root "$peers" --git https://github.com/mufeedvh/binserve --rev 1e32f94

if [ -n "$missed" ]; then say "not to be had:$missed"; fi
say 'anthill bench list shows all contenders'
