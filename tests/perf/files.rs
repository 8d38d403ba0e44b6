//! `read`: small, middle and large files.

use serde_json::json;

use crate::server::Server;
use crate::table::{Table, median_ms};

pub(crate) fn measure(table: &mut Table) {
    let server = Server::start();
    let mut driver = server.connect();
    for (what, bytes, times, goal) in [
        ("read 4 KiB, p50", 4 << 10, 1_000, 0.10),
        ("read 1 MiB, p50", 1 << 20, 100, 0.8),
    ] {
        let line =
            "a line of a file of source code, about eighty bytes long, as most of them are\n";
        std::fs::write(
            server.workspace().join("file"),
            line.repeat(bytes / line.len()),
        )
        .unwrap();
        let mut taken = Vec::new();
        for _ in 0..times {
            taken.push(
                driver
                    .call("read", json!({"path": "file", "limit": 1_000_000}))
                    .1,
            );
        }
        table.at_most(what, None, median_ms(&mut taken), goal, "ms");
    }
}
