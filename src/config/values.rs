//! The values of settings: how they are spelled, and what they may be.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize as _, Deserializer};

use super::ConfigError;
use crate::dispatch::Tool;
use crate::limits::Limits;

pub(super) fn limits(
    max_concurrent_calls: Option<usize>,
    session_ttl: Option<Duration>,
    drain_timeout: Option<Duration>,
    kill_grace: Option<Duration>,
    bash_timeout: Option<Duration>,
) -> Result<Limits, ConfigError> {
    let mut limits = Limits::default();
    if let Some(calls) = max_concurrent_calls {
        limits.max_concurrent_calls = in_range("max_concurrent_calls", calls, 1, 10_000)?;
    }
    let day = Duration::from_hours(24);
    let second = Duration::from_secs(1);
    for (key, value, least, most, limit) in [
        (
            "session_ttl",
            session_ttl,
            second,
            day,
            &mut limits.session_ttl,
        ),
        (
            "drain_timeout",
            drain_timeout,
            Duration::ZERO,
            60 * second,
            &mut limits.drain_timeout,
        ),
        (
            "kill_grace",
            kill_grace,
            Duration::ZERO,
            60 * second,
            &mut limits.kill_grace,
        ),
        (
            "bash_timeout",
            bash_timeout,
            Duration::from_millis(1),
            limits.max_bash_timeout,
            &mut limits.bash_timeout,
        ),
    ] {
        if let Some(value) = value {
            if !(least..=most).contains(&value) {
                let (value, least, most) = (spell(value), spell(least), spell(most));
                return Err(ConfigError(format!(
                    "`{key}` is {value}, expected {least} to {most}"
                )));
            }
            *limit = value;
        }
    }
    Ok(limits)
}

fn in_range(key: &str, value: usize, least: usize, most: usize) -> Result<usize, ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError(format!(
        "`{key}` is {value}, expected {least} to {most}"
    )))
}

pub(super) fn spell(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_invalid| "expected a time with its unit, as in 500ms, 2s or 10m".to_owned())
}

pub(super) fn duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text)
        .map(Some)
        .map_err(|expected| serde::de::Error::custom(format!("`{text}`: {expected}")))
}

pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_invalid| "expected an address with its port, as in 127.0.0.1:8787".to_owned())
}

pub(super) fn address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_address(&text)
        .map(Some)
        .map_err(|expected| serde::de::Error::custom(format!("`{text}`: {expected}")))
}

pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_invalid| "expected a whole number".to_owned())
}

pub(super) fn parse_tool(name: &str) -> Result<Tool, String> {
    Tool::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Tool::ALL.iter().map(|tool| tool.name()).collect();
        format!("expected one of {}", known.join(", "))
    })
}

pub(super) fn tools<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Tool>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let parse = |name: &String| {
        parse_tool(name)
            .map_err(|expected| serde::de::Error::custom(format!("`{name}`: {expected}")))
    };
    names.iter().map(parse).collect()
}
