//! One validated configuration, from flags, environment and file in this order of strength.

mod keys;
mod values;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::dispatch::{Tool, ToolPolicy};
use crate::limits::Limits;
use crate::process::Background;
use crate::telemetry::{LogFormat, LogLevel};
pub use keys::{KEYS, Key, changed};
use values::{
    address, duration, limits, parse_address, parse_count, parse_duration, parse_tool, tools,
};

/// What can be set; every member is optional, since another source may give it.
///
/// The same names serve as flags (`--bash-timeout`), as variables (`BMA_EXECUTOR_BASH_TIMEOUT`) and as keys of the
/// configuration file (`bash_timeout`).
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Directory that sessions work in [default: the current directory]
    #[arg(long, value_name = "DIR", env = "BMA_EXECUTOR_WORKSPACE")]
    pub workspace: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDR", env = "BMA_EXECUTOR_LISTEN", value_parser = parse_address)]
    #[serde(deserialize_with = "address")]
    pub listen: Option<SocketAddr>,
    /// Address of `/livez`, `/readyz` and `/metrics`; port 0 takes a free one, which the log tells [default: off]
    #[arg(long, value_name = "ADDR", env = "BMA_EXECUTOR_ADMIN_LISTEN", value_parser = parse_address)]
    #[serde(deserialize_with = "address")]
    pub admin_listen: Option<SocketAddr>,
    /// Let the admin port be on an address other than loopback; it asks for no key
    #[arg(long, env = "BMA_EXECUTOR_ADMIN_EXPOSE", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub admin_expose: Option<bool>,
    /// File with the bearer key [default: `BMA_ENVIRONMENT_KEY`, else a key made in the state directory]
    #[arg(
        long,
        value_name = "FILE",
        env = "BMA_EXECUTOR_KEY_FILE",
        conflicts_with = "no_key"
    )]
    pub key_file: Option<PathBuf>,
    /// Ask for no key; only on a loopback address
    #[arg(long, env = "BMA_EXECUTOR_NO_KEY", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub no_key: Option<bool>,
    /// Where the harness is (`connect`): ws://HOST:PORT/PATH or wss://HOST:PORT/PATH
    #[arg(
        long,
        value_name = "URL",
        env = "BMA_HARNESS_URL",
        hide_env_values = true
    )]
    pub harness_url: Option<String>,
    /// Name of this environment, told to the harness (`connect`) [default: none]
    #[arg(long, value_name = "ID", env = "BMA_ENVIRONMENT_ID")]
    pub environment_id: Option<String>,
    /// Certificates (PEM) to trust besides the machine's own (`connect`) [default: none]
    #[arg(long, value_name = "FILE", env = "BMA_EXECUTOR_CA_FILE")]
    pub ca_file: Option<PathBuf>,
    /// Dial an address other than loopback without TLS (`connect`)
    #[arg(long, env = "BMA_EXECUTOR_ALLOW_PLAINTEXT", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub allow_plaintext: Option<bool>,
    /// Value of `Origin` to let in; repeatable [default: none]
    #[arg(
        long,
        value_name = "ORIGIN",
        env = "BMA_EXECUTOR_ALLOW_ORIGIN",
        value_delimiter = ','
    )]
    pub allow_origin: Vec<String>,
    /// Where the key and the state of the daemon are kept
    /// [default: $XDG_STATE_HOME/bma-executor/HASH-OF-WORKSPACE-PATH]
    #[arg(long, value_name = "DIR", env = "BMA_EXECUTOR_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// Tool that is not offered; repeatable [default: none]
    #[arg(long, value_name = "TOOL", env = "BMA_EXECUTOR_DISABLE", value_delimiter = ',', value_parser = parse_tool)]
    #[serde(deserialize_with = "tools")]
    pub disable: Vec<Tool>,
    /// Do not offer `write` and `edit`
    #[arg(long, env = "BMA_EXECUTOR_READ_ONLY", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub read_only: Option<bool>,
    /// Calls that may run at one time [default: 256]
    #[arg(long, value_name = "N", env = "BMA_EXECUTOR_MAX_CONCURRENT_CALLS", value_parser = parse_count)]
    pub max_concurrent_calls: Option<usize>,
    /// How long a session without a connection lives, as in 10m [default: 10m]
    #[arg(long, value_name = "TIME", env = "BMA_EXECUTOR_SESSION_TTL", value_parser = parse_duration)]
    #[serde(deserialize_with = "duration")]
    pub session_ttl: Option<Duration>,
    /// Time that running calls get at the stop, as in 2s [default: 2s]
    #[arg(long, value_name = "TIME", env = "BMA_EXECUTOR_DRAIN_TIMEOUT", value_parser = parse_duration)]
    #[serde(deserialize_with = "duration")]
    pub drain_timeout: Option<Duration>,
    /// Time between TERM and KILL, as in 2s [default: 2s]
    #[arg(long, value_name = "TIME", env = "BMA_EXECUTOR_KILL_GRACE", value_parser = parse_duration)]
    #[serde(deserialize_with = "duration")]
    pub kill_grace: Option<Duration>,
    /// Time-out of a bash call that names none, as in 2m [default: 2m]
    #[arg(long, value_name = "TIME", env = "BMA_EXECUTOR_BASH_TIMEOUT", value_parser = parse_duration)]
    #[serde(deserialize_with = "duration")]
    pub bash_timeout: Option<Duration>,
    /// What becomes of processes that outlive their shell: keep them until the session ends, or kill them at once
    /// [default: keep]
    #[arg(long, value_name = "WHAT", env = "BMA_EXECUTOR_BACKGROUND")]
    pub background: Option<Background>,
    /// How log lines are spelled [default: text]
    #[arg(long, value_name = "FORMAT", env = "BMA_EXECUTOR_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// The least serious log lines that are written [default: info]
    #[arg(long, value_name = "LEVEL", env = "BMA_EXECUTOR_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,
}

/// The configuration of one daemon, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The root workspace, as it was given.
    pub workspace: PathBuf,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the admin port is, if anywhere.
    pub admin: Option<SocketAddr>,
    /// Whether the admin port may be on an address other than loopback.
    pub admin_expose: bool,
    /// Where the key comes from.
    pub key: KeySource,
    /// Origins that are let in.
    pub allowed_origins: Vec<String>,
    /// Where the harness is, for `connect`.
    pub harness_url: Option<String>,
    /// Name of this environment.
    pub environment_id: Option<String>,
    /// Certificates to trust besides the machine's own.
    pub ca_file: Option<PathBuf>,
    /// Whether an address other than loopback may be dialled without TLS.
    pub allow_plaintext: bool,
    /// The state directory, where one was named.
    pub state_dir: Option<PathBuf>,
    /// What is offered.
    pub tools: ToolPolicy,
    /// The bounds.
    pub limits: Limits,
    /// What becomes of processes that outlive their shell.
    pub background: Background,
    /// How log lines are spelled.
    pub log_format: LogFormat,
    /// Which are written.
    pub log_level: LogLevel,
}

/// Where the bearer key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// No key is asked for.
    None,
    /// A file that the operator named.
    File(PathBuf),
    /// The environment, else the state directory.
    Default,
}

/// Why a configuration cannot be used: one sentence that names the key, the value and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

#[expect(
    clippy::disallowed_methods,
    reason = "the configuration file is the operator's, not a workspace's"
)]
fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| {
        ConfigError(format!(
            "the configuration file `{}` cannot be read: {error}",
            path.display()
        ))
    })
}

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError`] names the file, the line and the key.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let wrong = |line: usize, what: String| {
            let what = what.replace('\n', " ");
            ConfigError(format!(
                "configuration file `{}`, line {line}: {}",
                path.display(),
                what.trim_end()
            ))
        };
        let line_of = |error: &toml::de::Error| {
            let before = error.span().map_or(0, |span| span.start);
            text.bytes()
                .take(before)
                .filter(|byte| *byte == b'\n')
                .count()
                + 1
        };
        let document = toml::Deserializer::parse(&text)
            .map_err(|error| wrong(line_of(&error), error.message().to_owned()))?;
        serde_path_to_error::deserialize(document).map_err(|error| {
            let (key, error) = (error.path().to_string(), error.into_inner());
            wrong(line_of(&error), format!("`{key}`: {}", error.message()))
        })
    }

    /// Returns the names that a configuration file sets.
    ///
    /// # Errors
    /// [`ConfigError`] where the file cannot be used.
    pub fn set_in_file(path: &Path) -> Result<BTreeSet<String>, ConfigError> {
        let keys: toml::Table = toml::from_str(&read(path)?)
            .map_err(|error| ConfigError(error.message().to_owned()))?;
        Ok(keys.into_iter().map(|(key, _)| key).collect())
    }

    /// Fills what is not set from a weaker source.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        let list = |strong: Vec<_>, weak| if strong.is_empty() { weak } else { strong };
        Self {
            workspace: self.workspace.or(weaker.workspace),
            listen: self.listen.or(weaker.listen),
            admin_listen: self.admin_listen.or(weaker.admin_listen),
            admin_expose: self.admin_expose.or(weaker.admin_expose),
            // A key file set by the stronger source overrides a `no_key` of the weaker one, and the reverse.
            no_key: self.no_key.or(if self.key_file.is_some() {
                None
            } else {
                weaker.no_key
            }),
            key_file: if self.no_key == Some(true) {
                None
            } else {
                self.key_file.or(weaker.key_file)
            },
            allow_origin: if self.allow_origin.is_empty() {
                weaker.allow_origin
            } else {
                self.allow_origin
            },
            harness_url: self.harness_url.or(weaker.harness_url),
            environment_id: self.environment_id.or(weaker.environment_id),
            ca_file: self.ca_file.or(weaker.ca_file),
            allow_plaintext: self.allow_plaintext.or(weaker.allow_plaintext),
            state_dir: self.state_dir.or(weaker.state_dir),
            disable: list(self.disable, weaker.disable),
            read_only: self.read_only.or(weaker.read_only),
            max_concurrent_calls: self.max_concurrent_calls.or(weaker.max_concurrent_calls),
            session_ttl: self.session_ttl.or(weaker.session_ttl),
            drain_timeout: self.drain_timeout.or(weaker.drain_timeout),
            kill_grace: self.kill_grace.or(weaker.kill_grace),
            bash_timeout: self.bash_timeout.or(weaker.bash_timeout),
            background: self.background.or(weaker.background),
            log_format: self.log_format.or(weaker.log_format),
            log_level: self.log_level.or(weaker.log_level),
        }
    }

    /// Returns what is offered under these settings.
    pub fn tool_policy(&self) -> ToolPolicy {
        ToolPolicy {
            disabled: self.disable.iter().copied().collect::<BTreeSet<_>>(),
            read_only: self.read_only.unwrap_or(false),
        }
    }
}

impl Config {
    /// Checks settings and fills in the defaults.
    ///
    /// # Errors
    /// [`ConfigError`] names the key at fault.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        let tools = settings.tool_policy();
        let listen = settings
            .listen
            .unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8787));
        let key = match (settings.no_key.unwrap_or(false), settings.key_file) {
            (true, Some(_)) => {
                return Err(ConfigError(
                    "`no_key` and `key_file` are both set; give one of them".to_owned(),
                ));
            }
            (true, None) if !listen.ip().is_loopback() => {
                return Err(ConfigError(format!(
                    "`no_key` is only for loopback addresses, and `listen` is {listen}: anybody who reaches it could run commands"
                )));
            }
            (true, None) => KeySource::None,
            (false, Some(file)) => KeySource::File(file),
            (false, None) => KeySource::Default,
        };
        let admin_expose = settings.admin_expose.unwrap_or(false);
        if let Some(admin) = settings.admin_listen
            && !admin.ip().is_loopback()
            && !admin_expose
        {
            return Err(ConfigError(format!(
                "`admin_listen` is {admin}, expected a loopback address: the admin port asks for no key; set `admin_expose` where its network is trusted"
            )));
        }
        Ok(Self {
            workspace: settings.workspace.unwrap_or_else(|| PathBuf::from(".")),
            listen,
            admin: settings.admin_listen,
            admin_expose,
            key,
            allowed_origins: settings.allow_origin,
            harness_url: settings.harness_url,
            environment_id: settings.environment_id,
            ca_file: settings.ca_file,
            allow_plaintext: settings.allow_plaintext.unwrap_or(false),
            state_dir: settings.state_dir,
            tools,
            limits: limits(
                settings.max_concurrent_calls,
                settings.session_ttl,
                settings.drain_timeout,
                settings.kill_grace,
                settings.bash_timeout,
            )?,
            background: settings.background.unwrap_or_default(),
            log_format: settings.log_format.unwrap_or_default(),
            log_level: settings.log_level.unwrap_or_default(),
        })
    }
}
