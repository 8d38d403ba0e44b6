//! A long run in miniature: mixed load with connections that come and go, and a verdict on what must not grow meanwhile.
//!
//! `cargo bench --locked --bench perf -- soak [SECONDS]` (600 unless said otherwise). It stands alone: its figures are
//! compared with each other, not with a goal, so it also tells the truth on a machine that others use.
//! `RELEASE_BINARY` names another binary than the bench's own, such as the one that `deploy/release` makes.

#![expect(
    clippy::wildcard_enum_match_arm,
    clippy::unwrap_in_result,
    clippy::map_err_ignore,
    reason = "a bench passes over what it does not ask for, and stops where an unwrap would"
)]

mod daemon;
mod worker;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use daemon::Daemon;
use worker::work;

/// Harnesses at one time, each with a session of its own.
const HARNESSES: usize = 4;

/// Parts of the run, a row each.
const ROWS: u32 = 10;

/// How long everything stands still before the daemon is looked at: what a call leaves for a moment is no growth.
const STILL: Duration = Duration::from_secs(1);

/// What the harnesses count together.
#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    connections: AtomicU64,
    sent_again: AtomicU64,
    wrong: Mutex<Vec<String>>,
    /// Times of `bash{true}` and of a 4 KiB `read`, and of a bare `bash -c true` beside them.
    bash: Mutex<Vec<Duration>>,
    read: Mutex<Vec<Duration>>,
    bare: Mutex<Vec<Duration>>,
}

/// One row of the table.
struct Row {
    calls: u64,
    connections: u64,
    bash: [f64; 2],
    read: [f64; 2],
    bare: f64,
    rss: f64,
    descriptors: f64,
    threads: f64,
    children: f64,
    load: String,
}

/// Runs for so long; returns the exit status.
pub(crate) fn run(seconds: Option<&String>) -> i32 {
    let seconds: u32 = seconds.map_or(600, |text| text.parse().expect("SECONDS is a number"));
    let daemon = Daemon::start();
    let (counts, gate, stop) = (Counts::default(), RwLock::new(()), AtomicBool::new(false));
    let mut rows = Vec::new();
    println!(
        "| part | calls | connections | bash p50, p99 | read p50, p99 | bare bash p50 | RSS | descriptors | threads | processes | load |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    std::thread::scope(|scope| {
        for number in 0..HARNESSES {
            let (daemon, counts, gate, stop) = (&daemon, &counts, &gate, &stop);
            scope.spawn(move || work(number, daemon, counts, gate, stop));
        }
        let begun = Instant::now();
        for part in 1..=ROWS {
            let until = begun + Duration::from_secs(seconds.into()) * part / ROWS;
            while Instant::now() < until && counts.wrong.lock().unwrap().is_empty() {
                let spawned = Instant::now();
                Command::new("/bin/bash")
                    .args(["-c", "true"])
                    .status()
                    .unwrap();
                counts.bare.lock().unwrap().push(spawned.elapsed());
                std::thread::sleep(Duration::from_millis(200));
            }
            let still = gate.write().unwrap();
            std::thread::sleep(STILL);
            let row = daemon.look(&counts);
            drop(still);
            println!("| {part} {row}");
            rows.push(row);
            if !counts.wrong.lock().unwrap().is_empty() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "\n{seconds} s, {HARNESSES} harnesses; results sent again after a reconnect: {}",
        counts.sent_again.into_inner()
    );
    let mut wrong = counts.wrong.into_inner().unwrap();
    if wrong.is_empty() {
        wrong = verdict(&rows);
    }
    for what in &wrong {
        println!("NOT FLAT: {what}");
    }
    if wrong.is_empty() {
        println!(
            "flat: parts 8 to 10 beside parts 4 to 6 (memory within 5 % + 1 MiB, descriptors and threads within 2, no process more, p50 within 30 % + 0.2 ms after the machine's own change)"
        );
    }
    i32::from(!wrong.is_empty())
}

/// What grew from the middle of the run to its end.
fn verdict(rows: &[Row]) -> Vec<String> {
    let mut wrong = Vec::new();
    let median = |rows: &[Row], value: fn(&Row) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (early, late) = (&rows[3..6], &rows[7..10]);
    // A machine that got busier makes everything slower; how much, the bare spawn tells.
    let machine = (median(late, |row| row.bare) / median(early, |row| row.bare)).max(1.0);
    let mut hold = |what: &str, value: fn(&Row) -> f64, factor: f64, more: f64| {
        let (before, after) = (median(early, value), median(late, value));
        let most = before * factor + more;
        if after > most {
            wrong.push(format!(
                "{what}: {before:.2}, later {after:.2}, allowed {most:.2}"
            ));
        }
    };
    hold("memory in MiB", |row| row.rss, 1.05, 1.0);
    hold("descriptors", |row| row.descriptors, 1.0, 2.0);
    hold("threads", |row| row.threads, 1.0, 2.0);
    hold("processes", |row| row.children, 1.0, 0.0);
    hold(
        "bash{true}, p50 in ms",
        |row| row.bash[0],
        1.3 * machine,
        0.2,
    );
    hold(
        "read 4 KiB, p50 in ms",
        |row| row.read[0],
        1.3 * machine,
        0.2,
    );
    wrong
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pair = |[p50, p99]: [f64; 2]| format!("{p50:.2}, {p99:.1} ms");
        write!(
            f,
            "| {} | {} | {} | {} | {:.2} ms | {:.1} MiB | {} | {} | {} | {} |",
            self.calls,
            self.connections,
            pair(self.bash),
            pair(self.read),
            self.bare,
            self.rss,
            self.descriptors,
            self.threads,
            self.children,
            self.load,
        )
    }
}
