//! `grep` and `glob`, on a small tree and on a large one, beside `rg` run as a process.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client::Client;
use crate::machine::find;
use crate::plan::Plan;
use crate::sample::{Lane, Turn, in_turns, timed};
use crate::server::Server;
use crate::table::{Goal, Row, Table};
use crate::tree::Source;

/// So that it sees the files that we see.
const RULES: [&str; 4] = [
    "--no-config",
    "--hidden",
    "--no-require-git",
    "--no-messages",
];

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::start(plan);
    let mut source = Source::new();
    source.grow(&server.workspace(), 0, 40, 80);
    let rounds = (Turn::Short, plan.pick(1, 50, 200));
    for (what, tool, input, rg) in searches(plan) {
        let p50 = beside_rg(&server, rounds, tool, &input, &rg);
        table.add(row(&format!("{what}, 40 files, p50"), &p50).goal(Goal::AtMost(1.0)));
    }
    let files = plan.pick(100, 25_000, 25_000);
    source.grow(&server.workspace(), 0, files, 400);
    let rounds = (Turn::Long, plan.pick(1, 3, 15));
    for (what, tool, input, rg) in searches(plan) {
        let p50 = beside_rg(&server, rounds, tool, &input, &rg);
        let row = row(&format!("{what}, {files} files, p50"), &p50);
        // Without `rg` there is nothing to hold it against.
        let floor = row.floor;
        table.add(match floor {
            Some(floor) => row.goal(Goal::AtMost(floor)),
            None => row,
        });
    }
}

type Search = (String, &'static str, Value, Vec<String>);

fn searches(plan: &Plan) -> Vec<Search> {
    let glob = ["--files", "-g", "*.rs"].map(str::to_owned).to_vec();
    let mut searches = vec![(
        "glob `**/*.rs`".to_owned(),
        "glob",
        json!({"pattern": "**/*.rs"}),
        glob,
    )];
    let patterns = [
        "unsafe impl",
        r"\w+_handle\b",
        "zzz_not_there",
        r"(?i)todo|fixme",
    ];
    let taken = plan.pick(1, 3, patterns.len());
    searches.extend(patterns.iter().take(taken).map(|pattern| {
        let rg = ["-n", "-e", pattern].map(str::to_owned).to_vec();
        (
            format!("grep `{pattern}`"),
            "grep",
            json!({"pattern": pattern}),
            rg,
        )
    }));
    searches
}

fn row(what: &str, p50: &[f64]) -> Row {
    let row = Row::new(what, p50[0], "ms");
    match p50.get(1) {
        Some(floor) => row.floor(*floor),
        None => row,
    }
}

/// The medians of ours and, where it is installed, of `rg`.
pub(crate) fn beside_rg(
    server: &Server,
    (turn, times): (Turn, usize),
    tool: &str,
    input: &Value,
    rg: &[String],
) -> Vec<f64> {
    let mut client = Client::connect(server);
    let workspace = server.workspace();
    let mut lanes: Vec<Lane<'_>> = vec![Box::new(|| client.call(tool, input).1)];
    if find("rg").is_some() {
        lanes.push(Box::new(|| timed(|| run_rg(&workspace, rg))));
    }
    in_turns(turn, times, &mut lanes)
}

fn run_rg(workspace: &Path, arguments: &[String]) {
    let status = Command::new("rg")
        .args(RULES)
        .args(arguments)
        .arg("./")
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.code().is_some_and(|code| code < 2), "{status}");
}
