# Sourced by test_release.sh and test_arm.sh: the end-to-end tests with a program that is shipped, by ANTHILL_TEST_PROGRAM.

# Tests that need routes with `test = …`, which a shipped program refuses: whole files, and single tests of other files.
# `moving_names::` preloads a clock, and a static program loads no library.
skipped='moving_names:: cache:: cache_rfc9111:: given_up:: h2_attacks:: h2_clients:: h3:: h3_losses:: handlers:: hits:: interim::
    limits:: live:: manager_requests:: metrics:: monitoring:: pending:: slow_readers:: trailers:: tunnels:: versions::
    config::check_beside_a_running_server_changes_nothing
    h2::a_connection_without_requests_is_closed
    h2::a_drain_sends_goaway_twice_and_finishes_requests_under_way
    h2::a_reload_closes_nothing
    h2::an_endless_call_ends_with_its_stream_and_the_connection_stays_open
    h2::an_upload_waits_for_its_echo
    h2::bodies_in_both_directions_at_once
    h2::idle_connections_use_little_memory
    h2::many_requests_at_once_on_one_connection
    h2::responses_are_sent_by_priority
    h2::responses_equal_those_of_http_1
    h2::the_log_and_the_counters_show_http_2
    h2::unwanted_bodies_and_bodies_over_the_limit
    h2::without_tls_http_2_needs_the_key_h2c
    lifecycle::a_call_under_way_is_finished
    logs::combined_lines_describe_each_exchange
    logs::json_lines_are_json_and_have_more_fields
    logs::lines_of_the_format_with_the_host_name_the_host_and_the_port
    logs::skipped_responses_have_no_line'

# test_shipped PROGRAM FEATURES FILTER…: runs the end-to-end tests whose names contain a FILTER with PROGRAM, without those in
# $skipped. FEATURES are the arguments of Cargo for the features of PROGRAM.
test_shipped() {
    ANTHILL_TEST_PROGRAM=$1
    features=$2
    shift 2
    arguments=
    for test in $skipped; do arguments="$arguments --skip $test"; done
    : "${RUST_TEST_THREADS:=$((3 * $(nproc)))}"
    export RUST_TEST_THREADS ANTHILL_TEST_PROGRAM
    # shellcheck disable=SC2086
    TMPDIR=$(test_folder) cargo test --locked -p anthill --test e2e $features -- "$@" $arguments
}
