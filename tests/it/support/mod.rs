//! Starts executors and connections (`start_*`), sends (`send_*`), waits with a bound (`expect_*`) and does both (`check_*`).

pub mod binary;
pub mod client;
pub mod contract;
pub mod executor;
pub mod processes;

pub use client::{Client, Reply};
pub use executor::{Executor, start_executor, start_executor_with};

/// Longest wait for anything that should come soon. Generous, since the machine may be busy; a test that asks for
/// more speed measures it.
pub const SOON: std::time::Duration = std::time::Duration::from_secs(10);

/// Tells whether tests that take long shall run; where not, says so in one line.
pub fn slow_tests_run() -> bool {
    let run = std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1");
    if !run {
        println!("not run: it takes long, and RUN_SLOW_TESTS is not 1");
    }
    run
}
