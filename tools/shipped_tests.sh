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
    lifecycle::a_worker_that_hangs_is_named_and_ends_the_messages_to_the_watchdog
    logs::combined_lines_describe_each_exchange
    logs::json_lines_are_json_and_have_more_fields
    logs::lines_of_the_format_with_the_host_name_the_host_and_the_port
    logs::skipped_responses_have_no_line
    supervisor::the_supervisor_ends_with_the_server_and_its_status'

# Tests of what `make tiny` leaves out: backups, zstd, HTTP/3, the manager, Markdown, releases, the supervisor and pages of
# repositories.
left_out='backup:: backup_release:: deploy_release:: git_counts:: git_pages:: git_search:: guide_publishing:: manager::
    manager_browser:: manager_edits:: manager_floods:: manager_page:: manager_ticks:: previews:: publication_faults::
    publications:: publish_local:: publish_ssh:: releases:: service_managers:: supervisor::
    bad_answers::bad_answers_are_refused_or_broken_off
    bad_answers::silent_members_are_late
    by_request::a_rate_is_one_for_all_versions_and_workers
    by_request::an_error_page_has_the_operators_retry_after_alone
    cgi::a_body_that_stalls_during_the_response_is_logged
    cgi::failures_are_logged_with_text_and_rule
    cgi::fifty_megabytes_in_both_directions_at_once
    cgi::long_bodies_without_a_length_are_counted
    cgi::scripts_answer_alike_over_every_version_of_http
    cli::a_login_by_hand_learns_the_purpose_of_the_key
    cli::a_service_definition_is_printed_for_each_system
    compression::a_text_is_compressed_over_every_version_of_http
    config::each_error_is_shown_at_its_position
    demands::every_requirement_holds_over_every_transport
    deploy::background_processes_of_git_are_ended
    deploy::deployments_and_pages_share_their_repositories
    early_responses::clients_of_http3_get_every_response
    fastcgi::php_applications
    found_servers::the_only_server_is_found_from_any_folder
    fresh::a_redirect_of_a_script_leads_to_its_new_file_over_http_3
    git::one_address_serves_reading_to_all_and_pushes_to_users
    git::other_files_and_repositories_are_not_served
    git::packs_over_http_3
    guards::every_alias_of_a_guarded_resource
    guards::lists_of_repositories_show_only_readable_repositories
    guide_containers::the_image_serves_as_a_user_without_privileges
    guide_examples::a_site_is_saved_and_restored_as_printed
    guide_examples::an_account_for_publishers_is_made_as_printed
    guide_examples::an_owner_saves_and_restores_as_printed
    guide_examples::every_configuration_passes_the_check
    guide_examples::the_manager_runs_as_printed
    guide_recipes::the_recipe_of_git_runs_as_printed
    half_closed::each_side_ends_first_over_http_3
    hostile_requests::content_announced_as_none_reaches_no_member
    hostile_requests::over_http_3
    kept_connections::no_request_over_http_3_is_lost_by_a_reload_that_changes_certificates
    kept_connections::other_client_authorities_end_connections
    lifecycle::datagram_sockets_that_are_passed_in_serve_http_3
    listings::a_listing_has_the_readme_as_html
    proxy::a_head_of_unknown_length_has_no_length
    proxy::a_reset_within_an_upload_over_http_3_frees_the_member_at_once
    rare_lines::an_unknown_name_over_http3_is_logged
    root::a_backup_has_no_file_that_the_owner_has_linked_to
    root::restore_
    root::the_owner_saves_and_restores_a_site_without_access_to_the_server
    secrets::no_file_of_the_servers_own_is_served_by_any_name
    sites_by_port::each_site_answers_at_its_own_addresses_alone
    status::a_site_without_a_release_and_a_certificate_of_other_names_are_problems
    systemd::a_unit_of_an_account_runs
    systemd::applications_run_inside_the_service
    systemd::publishers_reach_a_service_by_ssh
    systemd::the_readme_becomes_a_service_in_both_orders
    trust::the_client_is_found_over_http_3'

# test_shipped PROGRAM FILTER…: runs the end-to-end tests with PROGRAM: all tests with a FILTER in the name, except for the
# tests in $skipped.
test_shipped() {
    ANTHILL_TEST_PROGRAM=$1
    shift
    arguments=
    for test in $skipped; do arguments="$arguments --skip $test"; done
    : "${RUST_TEST_THREADS:=$((3 * $(nproc)))}"
    export RUST_TEST_THREADS ANTHILL_TEST_PROGRAM
    # shellcheck disable=SC2086
    TMPDIR=$(test_folder) cargo test --locked -p anthill --test e2e -- "$@" $arguments
}
