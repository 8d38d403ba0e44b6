//! Starts executors and connections (`start_*`), sends (`send_*`), waits with a bound (`expect_*`) and does both (`check_*`).

pub mod binary;
pub mod client;
pub mod contract;
pub mod executor;
pub mod processes;
pub mod watched;
pub mod wrapped;

pub use client::{Client, Reply};
pub use executor::{Executor, start_executor, start_executor_with};

/// Longest wait for anything that should come soon. Generous, since the machine may be busy; a test that asks for
/// more speed measures it.
pub const SOON: std::time::Duration = std::time::Duration::from_secs(10);

/// Whether tests that take more than ten seconds are to run; says so where not.
pub fn slow_tests_run() -> bool {
    let run = std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1");
    if !run {
        println!("not run: it takes long; RUN_SLOW_TESTS=1 asks for it");
    }
    run
}
