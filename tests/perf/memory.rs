//! The daemon's memory while much passes through it, and while a harness does not read what it asked for.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::plan::Plan;
use crate::server::Server;
use crate::table::{Goal, Row, Table};

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::start(plan);
    let mut client = Client::connect(&server);
    let megabytes = plan.pick(2, 200, 200);
    let command = format!("head -c {megabytes}000000 /dev/zero | tr '\\0' a");
    client.call("bash", &json!({"command": command}));
    table.add(
        Row::new(
            "memory, peak over 200 MB of output",
            server.memory_mib("VmHWM"),
            "MiB",
        )
        .goal(Goal::AtMost(24.0)),
    );
    drop(server);
    let seconds = plan.pick(1, 0, 60);
    if seconds == 0 {
        return;
    }
    let server = Server::start(plan);
    std::fs::write(
        server.workspace().join("file"),
        "0123456789abcde\n".repeat(62_500),
    )
    .unwrap();
    let mut client = Client::connect(&server);
    for _ in 0..plan.pick(10, 200, 200) {
        client.send("read", &json!({"path": "file", "limit": 1_000_000}));
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
    }
    table.add(
        Row::new(
            "memory, peak over 60 s with 200 × 1 MB for a harness that does not read",
            server.memory_mib("VmHWM"),
            "MiB",
        )
        .goal(Goal::AtMost(96.0)),
    );
}
