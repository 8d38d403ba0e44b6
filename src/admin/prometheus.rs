//! The counters of a daemon as Prometheus text (exposition format 0.0.4).
//!
//! Every name and label value is written here or is one of a closed set, so that the number of series is fixed.

use std::fmt::{Display, Write as _};

use crate::dispatch::{Hub, Tool};
use crate::metrics::{BUCKETS_MS, Metrics};
use crate::process::own_usage;
use crate::wire::{ErrorCode, Outcome, PROTOCOL_VERSIONS};

/// Text that grows by one family after the other.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        if writeln!(self.0, "{line}").is_err() {
            tracing::debug!("a line of the metrics could not be written");
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "counter", help, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "gauge", help, value);
    }
}

/// Renders everything there is to know of a hub.
pub(super) fn render(hub: &Hub) -> String {
    let mut page = Page::default();
    let metrics = hub.metrics();
    build(&mut page);
    calls(&mut page, metrics);
    durations(&mut page, metrics);
    amounts(&mut page, hub);
    traffic(&mut page, metrics);
    journal(&mut page, metrics);
    process(&mut page, metrics);
    page.0
}

/// Each tool with its number; the last stands for all that do not exist.
fn tools() -> impl Iterator<Item = (&'static str, Option<usize>)> {
    let known = Tool::ALL.map(|tool| (tool.name(), Some(tool.number())));
    known.into_iter().chain([("unknown", None)])
}

fn build(page: &mut Page) {
    let name = "bma_executor_build_info";
    page.family(name, "gauge", "What runs here; always 1.");
    page.line(format_args!(
        "{name}{{version=\"{}\",protocol=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION"),
        PROTOCOL_VERSIONS[0],
    ));
}

fn calls(page: &mut Page, metrics: &Metrics) {
    let name = "bma_executor_calls_total";
    page.family(name, "counter", "Calls answered, by tool and outcome.");
    for (tool, number) in tools() {
        let calls = metrics.tool(number);
        for outcome in Outcome::ALL {
            let count = calls.map_or(0, |calls| calls.count(outcome));
            let outcome = outcome.name();
            page.line(format_args!(
                "{name}{{tool=\"{tool}\",outcome=\"{outcome}\"}} {count}"
            ));
        }
    }
    let name = "bma_executor_tool_errors_total";
    page.family(
        name,
        "counter",
        "Calls that succeeded with an error for the model to repair, by tool.",
    );
    for (tool, number) in tools() {
        let count = metrics.tool(number).map_or(0, |calls| calls.errors.get());
        page.line(format_args!("{name}{{tool=\"{tool}\"}} {count}"));
    }
    let name = "bma_executor_refused_total";
    page.family(
        name,
        "counter",
        "Calls and messages that were not run, by error code.",
    );
    for code in ErrorCode::ALL {
        let (count, code) = (metrics.refused_count(code), code.name());
        page.line(format_args!("{name}{{reason=\"{code}\"}} {count}"));
    }
}

fn durations(page: &mut Page, metrics: &Metrics) {
    let name = "bma_executor_call_duration_seconds";
    page.family(
        name,
        "histogram",
        "Time from the receipt of a call to its queued answer, by tool.",
    );
    for (tool, number) in tools() {
        let Some(calls) = metrics.tool(number) else {
            continue;
        };
        let counts = calls.durations.cumulative();
        for (most, count) in BUCKETS_MS.into_iter().zip(counts) {
            let (whole, rest) = (most / 1_000, most % 1_000);
            page.line(format_args!(
                "{name}_bucket{{tool=\"{tool}\",le=\"{whole}.{rest:03}\"}} {count}"
            ));
        }
        let total = counts.last().copied().unwrap_or(0);
        let sum = calls.durations.sum().as_secs_f64();
        page.line(format_args!(
            "{name}_bucket{{tool=\"{tool}\",le=\"+Inf\"}} {total}"
        ));
        page.line(format_args!("{name}_sum{{tool=\"{tool}\"}} {sum}"));
        page.line(format_args!("{name}_count{{tool=\"{tool}\"}} {total}"));
    }
}

fn amounts(page: &mut Page, hub: &Hub) {
    let amounts = hub.amounts();
    for (name, help, value) in [
        (
            "bma_executor_running_calls",
            "Calls that have no answer yet.",
            amounts.running_calls,
        ),
        ("bma_executor_sessions", "Open sessions.", amounts.sessions),
        (
            "bma_executor_connections",
            "Harness connections.",
            amounts.connections,
        ),
        (
            "bma_executor_background_processes",
            "Processes that outlived their command, as last counted.",
            amounts.background_processes,
        ),
        (
            "bma_executor_kept_result_bytes",
            "Bytes of results kept for sending again.",
            amounts.kept_result_bytes,
        ),
    ] {
        page.gauge(name, help, value);
    }
}

fn traffic(page: &mut Page, metrics: &Metrics) {
    for (name, help, counter) in [
        (
            "bma_executor_received_bytes_total",
            "Bytes read from harness connections after their handshake.",
            &metrics.received_bytes,
        ),
        (
            "bma_executor_sent_bytes_total",
            "Bytes written to harness connections after their handshake.",
            &metrics.sent_bytes,
        ),
        (
            "bma_executor_dropped_progress_bytes_total",
            "Bytes of progress that were dropped because nobody took them in time.",
            &metrics.dropped_progress_bytes,
        ),
        (
            "bma_executor_connections_total",
            "Harness connections made since the start.",
            &metrics.connections,
        ),
        (
            "bma_executor_refused_connections_total",
            "Connections refused or lost before the end of their handshake.",
            &metrics.refused_connections,
        ),
        (
            "bma_executor_reconnects_total",
            "Connections to the harness after the first (connect).",
            &metrics.reconnects,
        ),
        (
            "bma_executor_dial_failures_total",
            "Attempts to reach the harness that failed (connect).",
            &metrics.dial_failures,
        ),
    ] {
        page.counter(name, help, counter.get());
    }
}

fn journal(page: &mut Page, metrics: &Metrics) {
    let journal = &metrics.journal;
    let name = "bma_executor_journal_mode";
    page.family(
        name,
        "gauge",
        "Where the journal is; 1 for the mode it is in.",
    );
    for (mode, is) in [
        ("disk", journal.is_on_disk()),
        ("memory", !journal.is_on_disk()),
    ] {
        page.line(format_args!("{name}{{mode=\"{mode}\"}} {}", u8::from(is)));
    }
    for (name, help, counter) in [
        (
            "bma_executor_journal_records_total",
            "Records written to the journal.",
            &journal.records,
        ),
        (
            "bma_executor_journal_bytes_total",
            "Bytes written to the journal.",
            &journal.bytes,
        ),
        (
            "bma_executor_journal_errors_total",
            "Records that could not be written to the journal.",
            &journal.errors,
        ),
    ] {
        page.counter(name, help, counter.get());
    }
}

fn process(page: &mut Page, metrics: &Metrics) {
    let usage = own_usage();
    page.gauge(
        "process_start_time_seconds",
        "Start of the daemon, in seconds since the epoch.",
        metrics.started_seconds(),
    );
    for (name, help, value) in [
        (
            "process_resident_memory_bytes",
            "Resident memory of the daemon, without its commands.",
            usage.resident_bytes,
        ),
        (
            "process_open_fds",
            "Descriptors that the daemon has open.",
            usage.descriptors,
        ),
        (
            "process_max_fds",
            "Descriptors that the daemon may have open.",
            usage.most_descriptors,
        ),
        ("process_threads", "Threads of the daemon.", usage.threads),
    ] {
        // What cannot be known is left out rather than shown as a number.
        if let Some(value) = value {
            page.gauge(name, help, value);
        }
    }
}
