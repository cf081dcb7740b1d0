#!/bin/sh
# Runs the long tests of the service with the program of `make release`: tools/test_service.sh [PROGRAM]. They take about five
# minutes, and their figures are meant for the optimised program. `make test` has a short test of each kind.
set -eu
. "$(dirname "$0")/setup.sh"

setup build test
setup_debian
setup_services
program=${1:-}
if [ -z "$program" ]; then
    setup release
    sh tools/release.sh
    program=target/$(uname -m)-unknown-linux-musl/release/anthill
fi
ANTHILL_TEST_PROGRAM=$(realpath "$program")
ANTHILL_TEST_LONG=1
export ANTHILL_TEST_PROGRAM ANTHILL_TEST_LONG
TMPDIR=$(test_folder) cargo test --locked -p anthill --test e2e -- service_long:: service_managers:: systemd:: \
    supervisor:: --skip supervisor::the_supervisor_ends_with_the_server_and_its_status
