//! `grep` and `glob`: on a small tree, and on a large one beside `rg` run as a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Driver, Server, make_dir};
use crate::table::{Table, median_ms};

pub(crate) fn measure(table: &mut Table) {
    small_tree(table);
    large_tree(table);
}

fn small_tree(table: &mut Table) {
    let server = Server::start();
    let mut driver = server.connect();
    for at in 0..40 {
        let directory = make_dir(&server.workspace(), &format!("d{}", at % 5));
        std::fs::write(
            directory.join(format!("f{at}.rs")),
            "fn main() {}\n// needle\n".repeat(40),
        )
        .unwrap();
    }
    let mut row = |what: &str, tool: &str, input: Value| {
        let mut taken: Vec<_> = (0..300)
            .map(|_| driver.call(tool, input.clone()).1)
            .collect();
        table.at_most(what, None, median_ms(&mut taken), 1.0, "ms");
    };
    row("glob, 40 files, p50", "glob", json!({"pattern": "**/*.rs"}));
    for pattern in [
        "zzz",
        r"needle \d",
        r"\w+_handle\b",
        r"\bstruct\b",
        r"^\s*//!",
        r"\w+\s+=\s+\d+",
        r"(?i)todo|fixme",
    ] {
        let what = format!("grep `{}`, 40 files, p50", pattern.replace('|', "\\|"));
        row(&what, "grep", json!({"pattern": pattern}));
    }
}

/// Files of the large tree.
const FILES: usize = 25_000;
/// Pairs of runs; their medians are compared.
const RUNS: usize = 15;

fn large_tree(table: &mut Table) {
    let Some(sources) = registry() else {
        println!("not measured: the sources of the dependencies are not at hand");
        return;
    };
    let server = Server::start();
    let workspace = server.workspace();
    let mut files = 0;
    for copy in 0.. {
        copy_tree(&sources, &workspace.join(format!("copy{copy}")), &mut files);
        if files >= FILES {
            break;
        }
        assert!(files > 0, "{} holds no file", sources.display());
    }
    let mut driver = server.connect();
    let beside = |driver: &mut Driver, tool: &str, input: Value, rg: &[&str]| {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..=RUNS {
            theirs.push(run_rg(&workspace, rg));
            ours.push(driver.call(tool, input.clone()).1);
        }
        // The first pair warms the cache.
        (median_ms(&mut theirs[1..]), median_ms(&mut ours[1..]))
    };
    let rules = ["--no-config", "--hidden", "--no-require-git"];
    let (floor, value) = beside(
        &mut driver,
        "glob",
        json!({"pattern": "**/*.rs"}),
        &[&rules[..], &["--files", "-g", "*.rs"]].concat(),
    );
    let what = format!("glob `**/*.rs`, {files} files, beside `rg --files`");
    table.at_most(&what, Some(floor), value, floor, "ms");
    for pattern in ["unsafe impl", r"\w+_handle\b", "zzz_not_there"] {
        let (floor, value) = beside(
            &mut driver,
            "grep",
            json!({"pattern": pattern}),
            &[&rules[..], &["-n", "-e", pattern]].concat(),
        );
        let what = format!("grep `{pattern}`, {files} files, beside `rg`");
        table.at_most(&what, Some(floor), value, floor, "ms");
    }
}

fn run_rg(workspace: &Path, arguments: &[&str]) -> Duration {
    let begun = Instant::now();
    let status = Command::new("rg")
        .args(arguments)
        .arg("./")
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("ripgrep is installed");
    assert!(status.code().is_some_and(|code| code < 2), "{status}");
    begun.elapsed()
}

/// Where cargo has unpacked the sources of the dependencies.
fn registry() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let sources = home.join("registry/src");
    sources.is_dir().then_some(sources)
}

fn copy_tree(from: &Path, to: &Path, files: &mut usize) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &target, files);
        } else if !kind.is_symlink() {
            std::fs::copy(entry.path(), target).unwrap();
            *files += 1;
        }
    }
}
