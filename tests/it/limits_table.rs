//! The README's table of limits is that of `src/limits.rs`: every limit, its value, its reason, and how it is set.

use std::collections::BTreeMap;
use std::path::Path;

use bma_executor::config::KEYS;
use bma_executor::limits::Limits;

/// Set to anything, this writes the table that the code has into the README.
const UPDATE: &str = "UPDATE_LIMITS_TABLE";

const HEAD: &str = "| limit | value | why | set by |\n| --- | --- | --- | --- |\n";

/// Each member of `Limits` with the sentence above it, in order.
fn documented(source: &str) -> Vec<(String, String)> {
    let body = source.split("pub struct Limits {").nth(1).unwrap();
    let body = body.split("\n}").next().unwrap();
    let (mut all, mut doc) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            doc.push(text);
        } else if let Some(rest) = line.strip_prefix("pub ") {
            let name = rest.split(':').next().unwrap();
            all.push((name.to_owned(), std::mem::take(&mut doc).join(" ")));
        }
    }
    all
}

/// Each member of the default limits with its value as it is shown for debugging.
fn values() -> BTreeMap<String, String> {
    let shown = format!("{:#?}", Limits::default());
    let lines = shown
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','));
    lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A value with its unit.
fn with_unit(name: &str, value: &str) -> String {
    let Ok(number) = value.parse::<u64>() else {
        // A duration, as in `2s` or `100ms`.
        let seconds = value
            .strip_suffix('s')
            .and_then(|value| value.parse::<f64>().ok());
        return match seconds {
            Some(seconds) if seconds >= 60.0 && seconds % 60.0 == 0.0 => {
                let minutes = seconds / 60.0;
                if minutes % 60.0 == 0.0 {
                    format!("{} h", minutes / 60.0)
                } else {
                    format!("{minutes} min")
                }
            }
            Some(seconds) => format!("{seconds} s"),
            None => value.replace("ms", " ms"),
        };
    };
    if name.ends_with("_bytes") || name.ends_with("_head") {
        return match number {
            _ if number >= 1 << 20 && number % (1 << 20) == 0 => format!("{} MiB", number >> 20),
            _ if number >= 1 << 10 && number % (1 << 10) == 0 => format!("{} KiB", number >> 10),
            _ => format!("{number} bytes"),
        };
    }
    let digits = number.to_string();
    let from_the_end: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8(from_the_end.join(&b',')).unwrap()
}

fn table() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(root.join("src/limits.rs")).unwrap();
    let values = values();
    let documented = documented(&source);
    assert_eq!(
        documented.len(),
        values.len(),
        "a limit could not be read: {values:#?}"
    );
    let row = |(name, why): &(String, String)| {
        let value = with_unit(name, &values[name]);
        let key = KEYS.iter().any(|key| key.name == name);
        let set = if key {
            format!("`--{}`", name.replace('_', "-"))
        } else {
            String::new()
        };
        format!("| `{name}` | {value} | {why} | {set} |\n")
    };
    let rows: String = documented.iter().map(row).collect();
    format!("{HEAD}{rows}")
}

#[test]
fn the_readme_lists_every_limit_as_the_code_has_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme
        .split_once(HEAD)
        .expect("the README has a table of limits");
    let (rows, after) = rest
        .split_once("\n\n")
        .expect("something follows the table");
    let (expected, found) = (table(), format!("{HEAD}{rows}\n"));
    if std::env::var_os(UPDATE).is_some() {
        let updated = format!("{before}{expected}\n{after}");
        std::fs::write(&path, updated).unwrap();
        return;
    }
    let wrong: Vec<_> = expected
        .lines()
        .filter(|row| !found.lines().any(|line| line == *row))
        .map(|row| format!("missing: {row}"))
        .chain(
            found
                .lines()
                .filter(|line| !expected.lines().any(|row| row == *line))
                .map(|line| format!("wrong: {line}")),
        )
        .collect();
    assert!(
        wrong.is_empty() && expected == found,
        "the table of limits is not that of src/limits.rs ({UPDATE}=1 writes it anew): {wrong:#?}"
    );
}

#[test]
fn every_limit_says_why_it_is_there() {
    let source =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/limits.rs"))
            .unwrap();
    for (name, why) in documented(&source) {
        assert!(
            why.len() > 20 && why.ends_with(['.', ')']),
            "`{name}`: {why:?}"
        );
    }
}
