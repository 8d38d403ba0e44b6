//! How it grows: latency with calls in flight, memory with sessions, search time with files.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::plan::Plan;
use crate::sample::{Turn, median_ms};
use crate::search::beside_rg;
use crate::server::{Server, scratch_in_memory};
use crate::table::{Curve, Fit, Table};
use crate::tree::Source;

/// Latency of a call while a number of others are on their way.
pub(crate) fn calls(plan: &Plan, table: &mut Table) {
    // A result is here before its call counts as over, so the 256th may be one too many for the default.
    let scratch = TempDir::new().unwrap();
    let server = Server::start_with(plan, scratch, &["--max-concurrent-calls", "512"]);
    std::fs::write(server.workspace().join("file"), "a line\n".repeat(585)).unwrap();
    let mut client = Client::connect(&server);
    for (name, tool, input) in [
        ("read 4 KiB", "read", json!({"path": "file"})),
        ("bash{true}", "bash", json!({"command": "true"})),
    ] {
        client.call(tool, &input);
        let points = (0..=plan.pick(2, 8, 8)).map(|step| {
            let in_flight = 1 << step;
            let calls = plan.pick(2 * in_flight, 200, 800).max(2 * in_flight);
            let mut times = latencies(&mut client, tool, &input, in_flight, calls);
            (in_flight as f64, median_ms(&mut times))
        });
        let points = points.collect();
        let curve = curve(
            "latency",
            name,
            "calls in flight",
            "ms",
            Fit::LogLog,
            points,
        );
        table.area().curves.push(curve);
    }
}

/// Keeps a number of calls on their way; the results come in any order.
fn latencies(
    client: &mut Client,
    tool: &str,
    input: &Value,
    in_flight: usize,
    calls: usize,
) -> Vec<Duration> {
    let mut waiting = VecDeque::new();
    let mut times = Vec::with_capacity(calls);
    for sent in 0..calls + in_flight {
        if sent >= in_flight {
            let answer = client.answer();
            let at = waiting.iter().position(|(id, _)| *id == answer.id).unwrap();
            let (_, begun): (String, Instant) = waiting.remove(at).unwrap();
            times.push(begun.elapsed());
            client.acknowledge(&answer);
        }
        if sent < calls {
            let begun = Instant::now();
            waiting.push_back((client.send(tool, input), begun));
        }
    }
    times
}

/// Memory with sessions, each of which has made a call.
pub(crate) fn sessions(plan: &Plan, table: &mut Table) {
    let server = Server::start(plan);
    std::fs::write(server.workspace().join("file"), "a line\n").unwrap();
    let mut client = Client::connect(&server);
    let mut points = Vec::new();
    let mut opened = 0;
    let steps = [1, 2, 5, 10, 20, 50, 100, 200, 400, 600, 800, 1_000];
    for target in steps.into_iter().take(plan.pick(4, 12, 12)) {
        while opened < target {
            client.send_in(&format!("grown-{opened}"), "read", &json!({"path": "file"}));
            let answer = client.answer();
            client.acknowledge(&answer);
            opened += 1;
        }
        points.push((f64::from(target), server.memory_mib("VmRSS") * 1_024.0));
    }
    let curve = curve("memory", "RSS", "sessions", "KiB", Fit::Linear, points);
    table.area().curves.push(curve);
}

/// Search time with files.
pub(crate) fn files(plan: &Plan, table: &mut Table) {
    let server = Server::start_with(plan, scratch_in_memory(), &[]);
    let mut source = Source::new();
    let searches = [
        (
            "glob",
            json!({"pattern": "**/*.rs"}),
            vec!["--files", "-g", "*.rs"],
        ),
        (
            "grep",
            json!({"pattern": "zzz_not_there"}),
            vec!["-n", "-e", "zzz_not_there"],
        ),
    ];
    let mut points = vec![Vec::new(); 4];
    let mut grown = 0;
    let sizes = plan.pick(
        &[10, 100][..],
        &[1_000, 3_000, 10_000, 30_000],
        &[1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    );
    for size in sizes {
        // Ten lines: a million of larger files would measure the memory.
        source.grow(&server.workspace(), grown, *size, 10);
        grown = *size;
        let rounds = if *size > 100_000 {
            1
        } else {
            plan.pick(1, 3, 5)
        };
        for (at, (tool, input, rg)) in searches.iter().enumerate() {
            let rg: Vec<_> = rg.iter().map(|&word| word.to_owned()).collect();
            for (of, p50) in beside_rg(&server, (Turn::Long, rounds), tool, input, &rg)
                .iter()
                .enumerate()
            {
                points[2 * of + at].push((*size as f64, *p50));
            }
        }
    }
    let names = ["glob", "grep", "rg --files", "rg"];
    for (name, points) in names
        .iter()
        .zip(points)
        .filter(|(_, points)| !points.is_empty())
    {
        let curve = curve("search", name, "files", "ms", Fit::LogLog, points);
        table.area().curves.push(curve);
    }
}

fn curve(
    chart: &str,
    name: &str,
    along: &str,
    unit: &str,
    fit: Fit,
    points: Vec<(f64, f64)>,
) -> Curve {
    let scale = |value: f64| {
        if fit == Fit::LogLog {
            value.ln()
        } else {
            value
        }
    };
    let scaled: Vec<_> = points.iter().map(|(x, y)| (scale(*x), scale(*y))).collect();
    let count = scaled.len() as f64;
    let mean_x = scaled.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = scaled.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = scaled.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let joint: f64 = scaled
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    Curve {
        chart: chart.to_owned(),
        name: name.to_owned(),
        along: along.to_owned(),
        unit: unit.to_owned(),
        fit,
        slope: joint / spread,
        points,
    }
}
