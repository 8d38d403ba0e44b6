//! `completions` and `man`: what packagers install beside the program, made from the command line's own description.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Failure, print};

/// For which shell.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// The shell that completes
    shell: Shell,
}

/// Of which command.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// The command to describe [default: the program as a whole]
    command: Option<String>,
}

/// Prints a completion script.
pub(super) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut Cli::command(),
        env!("CARGO_PKG_NAME"),
        &mut script,
    );
    print::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a man page (roff).
pub(super) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let mut program = Cli::command();
    program.build();
    let described = match &args.command {
        None => program,
        Some(name) => {
            let known = program.find_subcommand(name).cloned();
            let command = known.ok_or_else(|| {
                Failure::usage(format!(
                    "there is no command `{name}`; `bma-executor --help` lists them"
                ))
            })?;
            // The page is called as it is looked up: `man bma-executor-serve`.
            let page = format!("{}-{name}", env!("CARGO_PKG_NAME"));
            command.display_name(page)
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(described).render(&mut page)?;
    print::bytes(&page)?;
    Ok(ExitCode::SUCCESS)
}
