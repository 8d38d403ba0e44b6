//! `config`: the settings in force, as TOML, each with where it comes from. No secret is among them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::host::{self, ConfigArgs};
use super::{Failure, print};
use crate::config::{Config, KEYS, KeySource, Settings};

/// Prints every setting. `command` and `matches` are those of this subcommand.
pub(super) fn run(
    args: &ConfigArgs,
    command: &Command,
    matches: &ArgMatches,
) -> Result<ExitCode, Failure> {
    let config = Config::new(args.settings()?)?;
    let in_file = match &args.config {
        Some(file) => Settings::set_in_file(file)?,
        None => BTreeSet::new(),
    };
    let file = args
        .config
        .as_deref()
        .map(|file| file.display().to_string())
        .unwrap_or_default();
    let mut page = String::new();
    for key in &KEYS {
        let source = match matches.value_source(key.name) {
            Some(ValueSource::CommandLine) => format!("flag --{}", key.name.replace('_', "-")),
            Some(ValueSource::EnvVariable) => format!("variable {}", variable(command, key.name)),
            _ if in_file.contains(key.name) => format!("file {file}"),
            _ => "default".to_owned(),
        };
        let line = match key.shown(&config) {
            Some(value) => writeln!(page, "{} = {value}  # {source}", key.name),
            None if key.name == "state_dir" => writeln!(page, "# {}", default_state(&config)),
            None => writeln!(page, "# {} is not set", key.name),
        };
        line.map_err(|error| Failure {
            code: 1,
            sentence: error.to_string(),
        })?;
    }
    let key = key(&config)?;
    print::bytes(format!("{page}# the key: {key}\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the variable that stands for a flag.
fn variable(command: &Command, name: &str) -> String {
    command
        .get_arguments()
        .find(|argument| argument.get_id() == name)
        .and_then(|argument| argument.get_env())
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn default_state(config: &Config) -> String {
    let directory = std::path::absolute(&config.workspace)
        .and_then(|path| path.canonicalize())
        .map_err(|error| error.to_string())
        .and_then(|path| host::state_dir(None, &path).map_err(|failure| failure.sentence));
    match directory {
        Ok(directory) => format!("state_dir is not set: \"{}\"", directory.display()),
        Err(why) => format!("state_dir is not set, and there is no default: {why}"),
    }
}

/// Says where the key comes from.
fn key(config: &Config) -> Result<String, Failure> {
    Ok(match &config.key {
        KeySource::None => "none is asked for".to_owned(),
        KeySource::File(file) => format!("from the file \"{}\"", file.display()),
        KeySource::Default if host::key_of_environment()?.is_some() => {
            "from the variable BMA_ENVIRONMENT_KEY".to_owned()
        }
        KeySource::Default => "from `key` in the state directory (`serve`)".to_owned(),
    })
}
