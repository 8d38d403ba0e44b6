//! A command's output drained while its preview is kept, beside a `cat` that reads the same pipe and keeps nothing.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::plan::Plan;
use crate::sample::{Lane, Turn, in_turns, timed};
use crate::server::Server;
use crate::table::{Goal, Row, Table};

const MIB: usize = 1 << 20;

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::start(plan);
    let line = "a line of what a build or a test says, with nothing special in it at all\n";
    let file = server.workspace().join("text");
    let part = plan.pick(1, 64, 64);
    std::fs::write(&file, line.repeat(part * MIB / line.len())).unwrap();
    // One writer, which the page cache feeds: what bounds the pipe is its reader.
    let command = format!("cat {}", ["text"; 4].join(" "));
    let piped = format!("{command} | cat >/dev/null");
    let mut client = Client::connect(&server);
    let input = json!({"command": command});
    let bare = || {
        let mut bash = Command::new("/bin/bash");
        let status = bash
            .args(["-c", &piped])
            .current_dir(server.workspace())
            .status();
        assert!(status.unwrap().success());
    };
    let call = || -> Duration { client.call("bash", &input).1 };
    let mut lanes: [Lane<'_>; 2] = [Box::new(|| timed(bare)), Box::new(call)];
    let p50 = in_turns(Turn::Long, plan.pick(1, 3, 9), &mut lanes);
    let bytes = 4.0 * file.metadata().unwrap().len() as f64;
    let rate = |ms: f64| bytes / MIB as f64 / ms * 1_000.0;
    let floor = rate(p50[0]);
    let what = format!("output drained, {} MiB, beside `cat >/dev/null`", 4 * part);
    table.add(
        Row::new(&what, rate(p50[1]), "MiB/s")
            .floor(floor)
            .goal(Goal::AtLeast(0.8 * floor)),
    );
}
