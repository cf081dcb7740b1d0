//! End to end: the real binary, spoken to by real clients; and what holds the house together.

mod changing;
mod cost;
mod http;
mod journal;
mod layers;
mod limits;
mod live;
mod access;
mod clients;
mod config;
mod hosts;
mod journal;
mod layers;
mod logs;
mod mirror;
mod papers;
mod site;
mod support;
mod tls;
