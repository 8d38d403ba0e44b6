//! Speed and size, side by side with a floor measured in the same run. Prints a table; exits with 1 where a goal is missed.
//!
//! `cargo bench --locked --bench perf [-- AREA…]` with the areas `bash`, `files`, `journal`, `search`. The binary measured is the
//! one of the bench profile, that is a release build.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench stops where these would, prints its table and looks at processes from outside"
)]

mod bash;
mod files;
mod journal;
mod raw;
mod search;
mod server;
mod soak;
mod table;

use table::Table;

fn main() {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    if asked.first().is_some_and(|area| area == "soak") {
        std::process::exit(soak::run(asked.get(1)));
    }
    let wanted = |area: &str| asked.is_empty() || asked.iter().any(|name| name == area);
    let mut table = Table::default();
    if wanted("bash") {
        bash::measure(&mut table);
    }
    if wanted("files") {
        files::measure(&mut table);
    }
    if wanted("journal") {
        journal::measure(&mut table);
    }
    if wanted("search") {
        search::measure(&mut table);
    }
    table.print();
    if table.missed() > 0 {
        std::process::exit(1);
    }
}
