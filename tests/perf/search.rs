//! `grep` and `glob` on a small tree.

use serde_json::json;

use crate::server::{Server, make_dir};
use crate::table::{Table, median_ms};

pub(crate) fn measure(table: &mut Table) {
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
    for (what, tool, input) in [
        ("glob, 40 files, p50", "glob", json!({"pattern": "**/*.rs"})),
        (
            "grep, 40 files, p50",
            "grep",
            json!({"pattern": "needle \\d"}),
        ),
    ] {
        let mut taken = Vec::new();
        for _ in 0..300 {
            taken.push(driver.call(tool, input.clone()).1);
        }
        table.at_most(what, None, median_ms(&mut taken), 1.0, "ms");
    }
}
