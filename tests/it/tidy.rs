//! The rules of the house that a test can hold: who may know whom, how long a file may be, what stands at the top.

use std::path::{Path, PathBuf};

use crate::support::contract::files_below;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Each source file with its path below `src` and its text without comments.
fn sources() -> Vec<(String, String)> {
    let src = root().join("src");
    files_below(&src)
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect::<Vec<_>>()
                .join("\n");
            (
                path.strip_prefix(&src)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
                code,
            )
        })
        .collect()
}

/// Whether a file holds tests only.
fn is_test(path: &str) -> bool {
    Path::new(path).components().any(|part| {
        let name = part.as_os_str().to_str().unwrap();
        name == "tests.rs" || name == "tests" || name.ends_with("_tests") || name == "testing.rs"
    })
}

/// The code before a file's own test module.
fn production(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

/// A room, and what must not appear in it.
const ABSENCES: [(&str, &[&str]); 13] = [
    (
        "wire/",
        &[
            "tokio",
            "std::fs",
            "std::process",
            "crate::dispatch",
            "crate::net",
            "crate::tools",
            "crate::workspace",
            "crate::process",
        ],
    ),
    (
        "workspace/",
        &[
            "crate::wire",
            "crate::dispatch",
            "crate::net",
            "crate::tools",
            "crate::process",
            "crate::cli",
            "serde_json",
        ],
    ),
    (
        "process/",
        &[
            "crate::dispatch",
            "crate::net",
            "crate::tools",
            "crate::cli",
            "serde_json",
        ],
    ),
    (
        "tools/",
        &[
            "crate::dispatch",
            "crate::net",
            "crate::cli",
            "crate::harness",
            "serde_json",
            "tungstenite",
        ],
    ),
    (
        "dispatch/",
        &[
            "crate::net",
            "crate::cli",
            "crate::harness",
            "tungstenite",
            "std::fs",
        ],
    ),
    (
        "net/",
        &[
            "crate::tools",
            "crate::workspace",
            "crate::process",
            "crate::cli",
            "crate::harness",
            "serde_json",
        ],
    ),
    (
        "harness/",
        &[
            "crate::dispatch",
            "crate::tools",
            "crate::workspace",
            "crate::process",
            "crate::cli",
        ],
    ),
    // It looks, and never changes what it looks at.
    (
        "admin/",
        &[
            "crate::net",
            "crate::tools",
            "crate::cli",
            "crate::harness",
            "crate::daemon",
            "crate::config",
            "std::fs",
            "shut_down",
            "reoffer",
        ],
    ),
    (
        "metrics.rs",
        &[
            "crate::dispatch",
            "crate::net",
            "crate::admin",
            "Mutex",
            "String",
        ],
    ),
    ("health.rs", &["crate::", "tokio"]),
    ("dispatch/", &["axum", "crate::admin"]),
    (
        "",
        &["unbounded_channel", "todo!", "unimplemented!", "dbg!"],
    ),
    ("", &["#[ignore", "#[allow("]),
];

#[test]
fn rooms_know_only_what_they_may() {
    let mut found = Vec::new();
    for (path, code) in sources().iter().filter(|(path, _)| !is_test(path)) {
        for (room, absences) in ABSENCES {
            for absence in absences
                .iter()
                .filter(|absence| path.starts_with(room) && production(code).contains(*absence))
            {
                found.push(format!("src/{path} holds `{absence}`"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The rooms that may open paths of the machine, and those that may start programs.
const FILE_DOORS: [&str; 5] = ["workspace/", "process/", "state.rs", "config/", "cli/"];

#[test]
fn only_the_doors_reach_files_and_programs() {
    let mut found = Vec::new();
    for (path, code) in sources().iter().filter(|(path, _)| !is_test(path)) {
        let code = production(code);
        if code.contains("std::fs::") && !FILE_DOORS.iter().any(|door| path.starts_with(door)) {
            // A handle that the workspace opened may be read elsewhere.
            let paths = [
                "fs::read",
                "fs::write",
                "fs::remove",
                "fs::create",
                "fs::rename",
                "File::open",
                "File::create",
                "fs::metadata",
            ];
            found.extend(
                paths
                    .iter()
                    .filter(|name| code.contains(*name))
                    .map(|name| format!("src/{path}: {name}")),
            );
        }
        if code.contains("Command::new") && !path.starts_with("process/") {
            found.push(format!("src/{path} starts a program"));
        }
        if (code.contains("env::var") || code.contains("println!")) && !path.starts_with("cli/") {
            found.push(format!("src/{path} prints or reads the environment"));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Lines of code, comments and blank lines aside.
const MOST_LINES: usize = 300;

#[test]
fn no_file_is_longer_than_it_should_be() {
    let mut long = Vec::new();
    for (path, code) in sources().iter().filter(|(path, _)| !is_test(path)) {
        let lines = production(code)
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count();
        if lines > MOST_LINES {
            long.push(format!("src/{path}: {lines} lines of code"));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_file_says_first_why_it_exists() {
    for path in files_below(&root().join("src"))
        .iter()
        .chain(&files_below(&root().join("tests/it")))
    {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.starts_with("//! "),
            "{} does not begin with its purpose",
            path.display()
        );
    }
}

#[test]
fn the_map_names_every_room() {
    let map = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let head: String = map
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let room = name.trim_end_matches(".rs");
        assert!(
            matches!(room, "lib" | "main") || head.contains(&format!("`{room}`")),
            "the map does not name `{room}`"
        );
    }
}

/// What may stand at the top.
const TOP: [&str; 13] = [
    ".ci",
    ".git",
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "contracts",
    "deploy",
    "src",
    "target",
    "tests",
    ".github",
];

#[test]
fn nothing_else_stands_at_the_top() {
    for entry in std::fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(TOP.contains(&name.as_str()), "`{name}` stands at the top");
    }
}
