#!/bin/sh
# Starts examples/cluster: a balancer and four members, from the release build.
set -eu
. "$(dirname "$0")/setup.sh"

setup build
cargo build --locked --release -p anthill
exec sh examples/cluster/start.sh "$PWD/target/release/anthill" target/cluster
