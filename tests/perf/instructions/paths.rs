//! The hot paths of a call, each alone.

use std::hint::black_box;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::capture::Capture;
use crate::registry::{Bounds, Registry};
use crate::wire::{ContentBlock, Encoded, Outcome, SessionId, ToolCallId, ToolResult, decode};

/// Each with rounds enough to make the laying out and the chances of hashing small.
pub(crate) const NAMES: [(&str, u64); 4] = [
    ("decode a tool.call", 200),
    ("encode a result of 16 KiB", 100),
    ("admit and finish a call", 1_000),
    ("preview of 1 MiB", 5),
];

const LINE: &str = "    let value = match self.state {\t// a \"line\" of source, with what JSON escapes – and more\n";

/// Lays out a path and takes it a number of times.
pub(crate) fn run(name: &str, rounds: u64) {
    match name {
        "decode a tool.call" => decode_calls(rounds),
        "encode a result of 16 KiB" => encode_results(rounds),
        "admit and finish a call" => admit_and_finish(rounds),
        "preview of 1 MiB" => previews(rounds),
        other => panic!("there is no path `{other}`"),
    }
}

fn decode_calls(rounds: u64) {
    let command = "cargo test --workspace 2>&1 | tail -40 && git status --short \"src\" | head";
    let call = json!({"jsonrpc": "2.0", "method": "tool.call", "params": {
        "session_id": "5f0c9a3e-7e0b-4c53", "tool_call_id": "toolu_01A09q90qw90lq917835lq9", "name": "bash",
        "input": {"command": command, "cwd": "crates/core", "timeout_ms": 120_000, "env": {"RUST_LOG": "debug"}},
        "deadline_ms": 180_000, "permission": {"decision": "allow"},
    }});
    let text = call.to_string();
    for _ in 0..rounds {
        black_box(decode(black_box(&text)).unwrap());
    }
}

fn encode_results(rounds: u64) {
    let text = LINE.repeat((16 << 10) / LINE.len());
    let mut result = ToolResult {
        session_id: SessionId::new("5f0c9a3e-7e0b-4c53").unwrap(),
        tool_call_id: ToolCallId::new("toolu_01A09q90qw90lq917835lq9").unwrap(),
        outcome: Outcome::Succeeded,
        is_error: false,
        content: Vec::new(),
        error: None,
        details: Some(
            json!({"exit_code": 0, "cause": "exited", "duration_ms": 12, "stdout_bytes": 16_384}),
        ),
    };
    for _ in 0..rounds {
        result.content = vec![ContentBlock::text(black_box(&text))];
        black_box(Encoded::of(black_box(&result), usize::MAX).unwrap());
    }
}

fn admit_and_finish(rounds: u64) {
    let bounds = Bounds {
        finished: 100,
        finished_ttl: Duration::from_mins(10),
    };
    let ids: Vec<_> = (0..1_000)
        .map(|at| ToolCallId::new(&format!("toolu_{at:024}")).unwrap())
        .collect();
    let now = Instant::now();
    let mut registry = Registry::new(bounds);
    for (id, _) in ids.iter().zip(0..rounds) {
        black_box(registry.admit(black_box(id), [7; 32], (), now));
        black_box(registry.finish(black_box(id), 1_u64, now));
    }
}

fn previews(rounds: u64) {
    let output = LINE.repeat((1 << 20) / LINE.len());
    // What a pipe gives at one time, and what a preview keeps.
    let (chunk, kept) = (64 << 10, 48 << 10);
    for _ in 0..rounds {
        let mut capture = Capture::new(kept);
        black_box(output.as_bytes())
            .chunks(chunk)
            .for_each(|chunk| capture.push(chunk));
        black_box(capture.preview(kept));
    }
}
