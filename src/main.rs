//! The `bma-executor` binary; everything is in the library.

fn main() -> std::process::ExitCode {
    bma_executor::cli::run()
}
