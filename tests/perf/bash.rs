//! `bash`: the price over a bare spawn, one after another and side by side; memory.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::server::Server;
use crate::table::{Table, median_ms};

/// Pairs of a bare spawn and a call; interleaved, so that both see the same machine.
const PAIRS: usize = 400;

/// Calls of the measurement side by side.
const SIDE_BY_SIDE: usize = 1_600;

pub(crate) fn measure(table: &mut Table) {
    let server = Server::start();
    let ready = server.ready_after.as_secs_f64() * 1_000.0;
    table.at_most("ready after start", None, ready, 15.0, "ms");
    std::thread::sleep(Duration::from_secs(1));
    table.at_most("memory, idle", None, server.memory_mib("VmRSS"), 8.0, "MiB");
    let mut driver = server.connect();
    driver.call("bash", json!({"command": "true"}));
    let (mut bare, mut called) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let begun = Instant::now();
        bare_true();
        bare.push(begun.elapsed());
        called.push(driver.call("bash", json!({"command": "true"})).1);
    }
    let floor = median_ms(&mut bare);
    table.at_most(
        "bash{true}, one after another, p50",
        Some(floor),
        median_ms(&mut called),
        floor + 0.2,
        "ms",
    );
    let floor = bare_per_second();
    let begun = Instant::now();
    for sent in 0..SIDE_BY_SIDE + 8 {
        if sent >= 8 {
            driver.any_result();
        }
        if sent < SIDE_BY_SIDE {
            driver.send("bash", json!({"command": "true"}));
        }
    }
    let rate = SIDE_BY_SIDE as f64 / begun.elapsed().as_secs_f64();
    table.at_least(
        "bash{true}, 8 in flight",
        Some(floor),
        rate,
        0.85 * floor,
        "/s",
    );
    driver.call(
        "bash",
        json!({"command": "head -c 200000000 /dev/zero | tr '\\0' a"}),
    );
    table.at_most(
        "memory, peak over 200 MB of output",
        None,
        server.memory_mib("VmHWM"),
        24.0,
        "MiB",
    );
}

fn bare_true() {
    Command::new("/bin/bash")
        .args(["-c", "true"])
        .status()
        .unwrap();
}

/// What eight bare spawn loops reach together.
fn bare_per_second() -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..SIDE_BY_SIDE / 8).for_each(|_| bare_true()));
        }
    });
    SIDE_BY_SIDE as f64 / begun.elapsed().as_secs_f64()
}
