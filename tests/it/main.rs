//! The integration tests: through a real socket, with real files and real processes.
//!
//! `support` starts executors and harness connections; every frame that a test sends or receives is held against
//! `contracts/` there. Each other file is one behaviour.

#![expect(unreachable_pub, reason = "nothing is outside of a test binary")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    clippy::unwrap_in_result,
    clippy::match_wild_err_arm,
    clippy::manual_assert,
    clippy::format_collect,
    clippy::future_not_send,
    clippy::result_large_err,
    clippy::print_stdout,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test fails where these would, looks at files and processes from outside, and says what it did not run"
)]

mod support;

mod admin;
mod background;
mod bash;
mod bounds;
mod call_log;
mod cancels;
mod cli;
mod codec;
mod configuration;
mod connect;
mod connect_failures;
mod contracts;
mod daemon;
mod deaf;
mod delivery;
mod deploy;
mod doctor;
mod environment;
mod file_faults;
mod file_huge;
mod file_kills;
mod file_programs;
mod file_rights;
mod file_swaps;
mod file_writers;
mod files;
mod flood;
mod flow;
mod half_open;
mod handshake;
mod healthcheck;
mod journal;
mod journal_connect;
mod journal_faults;
mod journal_kills;
mod limits_table;
mod lost_sockets;
mod malformed;
mod manual;
mod oversize;
mod plain_http;
mod readme;
mod redaction;
mod redaction_dialled;
mod release;
mod ripgrep;
mod scant;
mod search;
mod search_huge;
mod search_shapes;
mod service_manager;
mod sessions;
mod simulation;
mod storm;
mod stress;
mod tidy;
