//! The settings as a table: the name of each, its effective value, and whether a running daemon takes a new one.

use std::path::Path;
use std::time::Duration;

use toml::Value;

use super::values::spell;
use super::{Config, KeySource};

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name in the configuration file; as a flag it has hyphens.
    pub name: &'static str,
    /// Whether SIGHUP changes it.
    pub reloads: bool,
    value: fn(&Config) -> Option<Value>,
    show: fn(Value) -> Value,
}

impl Key {
    const fn new(name: &'static str, value: fn(&Config) -> Option<Value>) -> Self {
        Self {
            name,
            reloads: false,
            value,
            show: |value| value,
        }
    }

    const fn reloading(name: &'static str, value: fn(&Config) -> Option<Value>) -> Self {
        Self {
            reloads: true,
            ..Self::new(name, value)
        }
    }

    /// Returns the effective value as it may be shown; `None` where there is none.
    pub fn shown(&self, config: &Config) -> Option<Value> {
        (self.value)(config).map(self.show)
    }
}

/// Returns the settings that differ.
pub fn changed(old: &Config, new: &Config) -> Vec<&'static Key> {
    KEYS.iter()
        .filter(|key| (key.value)(old) != (key.value)(new))
        .collect()
}

/// Every setting, in the order of the help.
pub static KEYS: [Key; 22] = [
    Key::new("workspace", |config| Some(path(&config.workspace))),
    Key::new("listen", |config| Some(text(&config.listen))),
    Key::new("admin_listen", |config| config.admin.as_ref().map(text)),
    Key::new("admin_expose", |config| Some(config.admin_expose.into())),
    Key::new("key_file", |config| match &config.key {
        KeySource::File(file) => Some(path(file)),
        KeySource::None | KeySource::Default => None,
    }),
    Key::new("no_key", |config| {
        Some((config.key == KeySource::None).into())
    }),
    Key {
        show: without_secrets,
        ..Key::new("harness_url", |config| {
            config.harness_url.as_ref().map(text)
        })
    },
    Key::new("environment_id", |config| {
        config.environment_id.as_ref().map(text)
    }),
    Key::new("ca_file", |config| config.ca_file.as_deref().map(path)),
    Key::new("allow_plaintext", |config| {
        Some(config.allow_plaintext.into())
    }),
    Key::new("allow_origin", |config| {
        Some(Value::Array(
            config.allowed_origins.iter().map(text).collect(),
        ))
    }),
    Key::new("state_dir", |config| config.state_dir.as_deref().map(path)),
    Key::reloading("disable", |config| {
        let tools = config.tools.disabled.iter();
        Some(Value::Array(tools.map(|tool| text(&tool.name())).collect()))
    }),
    Key::reloading("read_only", |config| Some(config.tools.read_only.into())),
    Key::new("max_concurrent_calls", |config| {
        i64::try_from(config.limits.max_concurrent_calls)
            .ok()
            .map(Value::Integer)
    }),
    Key::new("session_ttl", |config| {
        Some(time(config.limits.session_ttl))
    }),
    Key::new("drain_timeout", |config| {
        Some(time(config.limits.drain_timeout))
    }),
    Key::new("kill_grace", |config| Some(time(config.limits.kill_grace))),
    Key::new("bash_timeout", |config| {
        Some(time(config.limits.bash_timeout))
    }),
    Key::new("background", |config| named(&config.background)),
    Key::new("log_format", |config| named(&config.log_format)),
    Key::reloading("log_level", |config| named(&config.log_level)),
];

fn text(value: &impl ToString) -> Value {
    Value::String(value.to_string())
}

fn path(path: &Path) -> Value {
    text(&path.display())
}

fn time(time: Duration) -> Value {
    text(&spell(time))
}

/// Spells a choice as its flag does.
fn named(choice: &impl clap::ValueEnum) -> Option<Value> {
    let value = choice.to_possible_value()?;
    Some(text(&value.get_name()))
}

/// Leaves out what a URL may hold of secrets: its user, its path, its query.
fn without_secrets(url: Value) -> Value {
    let Some(whole) = url.as_str() else {
        return url;
    };
    let (scheme, rest) = whole.split_once("://").unwrap_or(("", whole));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    Value::String(format!("{scheme}://{host}"))
}
