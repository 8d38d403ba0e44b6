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
    Key::new("workspace", |config| path(&config.workspace)),
    Key::new("listen", |config| text(config.listen)),
    Key::new("admin_listen", |config| config.admin.and_then(text)),
    Key::new("admin_expose", |config| flag(config.admin_expose)),
    Key::new("key_file", |config| match &config.key {
        KeySource::File(file) => path(file),
        KeySource::None | KeySource::Default => None,
    }),
    Key::new("no_key", |config| flag(config.key == KeySource::None)),
    Key {
        show: without_secrets,
        ..Key::new("harness_url", |config| {
            config.harness_url.clone().and_then(text)
        })
    },
    Key::new("environment_id", |config| {
        config.environment_id.clone().and_then(text)
    }),
    Key::new("ca_file", |config| config.ca_file.as_deref().and_then(path)),
    Key::new("allow_plaintext", |config| flag(config.allow_plaintext)),
    Key::new("allow_origin", |config| list(&config.allowed_origins)),
    Key::new("state_dir", |config| {
        config.state_dir.as_deref().and_then(path)
    }),
    Key::reloading("disable", |config| {
        let names = config.tools.disabled.iter().map(|tool| tool.name());
        list(&names.collect::<Vec<_>>())
    }),
    Key::reloading("read_only", |config| flag(config.tools.read_only)),
    Key::new("max_concurrent_calls", |config| {
        i64::try_from(config.limits.max_concurrent_calls)
            .ok()
            .map(Value::Integer)
    }),
    Key::new("session_ttl", |config| time(config.limits.session_ttl)),
    Key::new("drain_timeout", |config| time(config.limits.drain_timeout)),
    Key::new("kill_grace", |config| time(config.limits.kill_grace)),
    Key::new("bash_timeout", |config| time(config.limits.bash_timeout)),
    Key::new("background", |config| named(config.background)),
    Key::new("log_format", |config| named(config.log_format)),
    Key::reloading("log_level", |config| named(config.log_level)),
];

fn text(value: impl ToString) -> Option<Value> {
    Some(Value::String(value.to_string()))
}

fn path(path: &Path) -> Option<Value> {
    text(path.display())
}

#[expect(clippy::unnecessary_wraps, reason = "each kind of value has one shape")]
fn flag(is: bool) -> Option<Value> {
    Some(Value::Boolean(is))
}

fn time(time: Duration) -> Option<Value> {
    text(spell(time))
}

fn list<S: ToString>(entries: &[S]) -> Option<Value> {
    let entries = entries.iter().map(ToString::to_string);
    Some(Value::Array(entries.map(Value::String).collect()))
}

/// Spells a choice as its flag does.
fn named(choice: impl clap::ValueEnum) -> Option<Value> {
    let value = choice.to_possible_value()?;
    text(value.get_name())
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
