//! End-to-end tests: each test runs the real `anthill` binary and speaks to the server with real clients.
//! Further modules check the source tree (layers) and the documentation.

// The modules of the tests name each other, and nothing outside names them.
#![allow(unreachable_pub)]

mod access;
mod acme;
mod backup;
mod backup_release;
mod bad_answers;
mod balancer;
mod balancer_edits;
mod balancer_oracle;
mod balancer_side_by_side;
mod by_request;
mod cache;
mod cache_rfc9111;
mod cgi;
mod changing;
mod cli;
mod clients;
mod closed_routes;
mod cms;
mod compression;
mod config;
mod cost;
mod demands;
mod deploy;
mod deploy_release;
mod disk;
mod early_responses;
mod early_successes;
mod encoded_slash;
mod explain;
mod fail2ban;
mod failing_members;
mod fastcgi;
mod files_first;
mod forward_auth;
mod found_servers;
mod fresh;
#[cfg(feature = "http3")]
mod given_up;
mod git;
mod git_counts;
mod git_pages;
mod git_search;
#[cfg(feature = "http3")]
mod grpc;
mod guards;
mod guide_applications;
mod guide_containers;
mod guide_examples;
mod guide_porting;
mod guide_publishing;
mod guide_recipes;
mod h2;
mod h2_attacks;
mod h2_clients;
mod h2_members;
#[cfg(feature = "http3")]
mod h3;
#[cfg(feature = "http3")]
mod h3_losses;
#[cfg(feature = "http3")]
mod h3_takeover;
mod half_closed;
mod handlers;
mod hidden_files;
mod hits;
mod hostile_requests;
mod hostile_rows;
mod hosts;
mod http;
mod init;
mod interim;
mod journal;
mod kept_connections;
mod layers;
mod lifecycle;
mod limits;
mod listings;
mod live;
mod log_files;
mod logs;
#[cfg(feature = "manager")]
mod manager;
#[cfg(feature = "manager")]
mod manager_browser;
#[cfg(feature = "manager")]
mod manager_edits;
#[cfg(feature = "manager")]
mod manager_floods;
#[cfg(feature = "manager")]
mod manager_page;
#[cfg(feature = "manager")]
mod manager_requests;
#[cfg(feature = "manager")]
mod manager_ticks;
mod members;
mod memory;
mod metrics;
mod mirror;
#[cfg(feature = "manager")]
mod monitoring;
mod moving_names;
mod open_files;
mod papers;
mod passed_content;
mod path_parameters;
mod path_rules;
mod pending;
mod previews;
mod proxied_applications;
mod proxied_fields;
mod proxy;
mod proxy_protocol;
mod proxy_tls;
mod publication_faults;
mod publications;
mod publish_local;
mod publish_ssh;
mod rare_lines;
mod raw_streams;
mod reason;
mod redirects;
mod release;
mod releases;
#[cfg(feature = "restart")]
mod restart;
mod root;
mod route_files;
mod secrets;
mod service_long;
mod service_managers;
mod shares;
mod site;
mod sites_by_port;
mod slow_readers;
mod status;
#[cfg(feature = "restart")]
mod supervisor;
mod support;
mod systemd;
#[cfg(feature = "restart")]
mod takeover;
mod tls;
mod tls_fragments;
mod tls_records;
mod toxiproxy;
mod trailers;
mod trust;
mod tunnels;
mod turns;
mod two_networks;
mod two_proxies;
#[cfg(feature = "http3")]
mod versions;
mod watch;
#[cfg(feature = "http3")]
mod websockets;
