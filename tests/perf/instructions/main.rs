//! Instructions that the hot paths take, held against committed figures: the same on a quiet machine and on a busy one.
//!
//! `cargo test --locked --config tests/perf/instructions/profile.toml --bench instructions -- --count` (or `--renew`)
//! counts them with valgrind, in runs of this program with many rounds and with none; exits with 1 where a path takes
//! more than it should.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench stops where these would, and prints what it found"
)]

#[expect(
    dead_code,
    reason = "the room's own file, since nobody outside of the room may call it"
)]
#[path = "../../../src/process/capture.rs"]
mod capture;
mod paths;
#[expect(
    dead_code,
    reason = "the room's own file, since nobody outside of the room may call it"
)]
#[path = "../../../src/dispatch/registry.rs"]
mod registry;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use bma_executor::{journal, wire};
use serde::{Deserialize, Serialize};

/// A path may take this much more than its figure: what another patch release of compiler or C library makes of it.
const TOLERANCE: f64 = 0.05;

#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    /// Another minor version compiles to something else.
    compiler: String,
    /// Instructions for one time.
    counts: BTreeMap<String, u64>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [run, name, rounds] = &words[..]
        && run == "--run"
    {
        return paths::run(name, rounds.parse().unwrap());
    }
    let asked = |flag: &str| words.iter().any(|word| word == flag);
    if cfg!(debug_assertions) || !(asked("--count") || asked("--renew")) {
        // They work; the counts of a debug build mean nothing.
        return paths::NAMES
            .iter()
            .for_each(|(name, _)| paths::run(name, 1));
    }
    let compiler = minor(&said("rustc", &["--version"]));
    if let Some(reason) = hindrance() {
        println!("no instructions counted: {reason}");
        return;
    }
    let counts = paths::NAMES.map(|(name, rounds)| (name.to_owned(), count(name, rounds)));
    let counted = Figures {
        compiler,
        counts: BTreeMap::from(counts),
    };
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/perf/figures/instructions.json");
    if asked("--renew") {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(
            &file,
            serde_json::to_string_pretty(&counted).unwrap() + "\n",
        )
        .unwrap();
    }
    let known: Figures = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let grown = compare(&counted, &known);
    if grown && counted.compiler != known.compiler {
        println!(
            "not held against them: they were taken with {}",
            known.compiler
        );
    } else if grown {
        println!(
            "a path takes more than it should; where that is meant, renew the figures (tests/perf/README.md)"
        );
        std::process::exit(1);
    }
}

/// Prints each path; returns whether one takes more than it should.
fn compare(counted: &Figures, known: &Figures) -> bool {
    let mut grown = false;
    println!("| path | instructions | figure | change | |\n| --- | --- | --- | --- | --- |");
    for (name, count) in &counted.counts {
        let Some(figure) = known.counts.get(name) else {
            panic!("no figure of {name}: renew them");
        };
        let change = ratio(*count, *figure) - 1.0;
        let verdict = match change {
            change if change > TOLERANCE => "MORE",
            change if change < -TOLERANCE => "less: renew the figures",
            _ => "same",
        };
        grown |= change > TOLERANCE;
        println!(
            "| {name} | {count} | {figure} | {:+.1} % | {verdict} |",
            change * 100.0
        );
    }
    grown
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn ratio(count: u64, figure: u64) -> f64 {
    count as f64 / figure as f64
}

/// Why nothing can be counted here.
fn hindrance() -> Option<&'static str> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Some("valgrind is not installed");
    }
    cfg!(not(all(target_arch = "x86_64", target_os = "linux")))
        .then_some("the figures are those of x86_64 Linux")
}

/// The instructions of one time, the start of the program and the laying out aside.
fn count(name: &str, rounds: u64) -> u64 {
    (collected(name, rounds) - collected(name, 0)) / rounds
}

fn collected(name: &str, rounds: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args(["--run", name, &rounds.to_string()])
        // The C library copies in another way on each processor; these let it copy in the plainest everywhere.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load,-AVX2_Usable,-Prefer_ERMS")
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let line = log.lines().find_map(|line| line.split_once("Collected : "));
    let Some((_, count)) = line else {
        panic!("valgrind does not say what it collected: {log}");
    };
    count.trim().parse().unwrap()
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// `rustc 1.95` of `rustc 1.95.0 (…)`.
fn minor(version: &str) -> String {
    let parts: Vec<_> = version.splitn(3, '.').collect();
    parts.into_iter().take(2).collect::<Vec<_>>().join(".")
}
