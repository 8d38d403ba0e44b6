//! How soon it is ready, how much memory it takes doing nothing, and how large the program is.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::peers::Peer;
use crate::plan::Plan;
use crate::sample::{Turn, in_turns, timed};
use crate::server::{Server, memory_mib};
use crate::table::{Goal, Row, Table};

const MIB: f64 = 1_048_576.0;

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let version = || {
        let mut command = Command::new(&plan.daemon);
        let status = command.arg("--version").stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
    };
    let p50 = in_turns(
        Turn::Long,
        plan.pick(1, 10, 30),
        &mut [
            Box::new(|| timed(version)),
            Box::new(|| Server::start(plan).ready_after),
        ],
    );
    let server = Server::start(plan);
    let peers = Peer::found();
    let of_peers = |value: fn(&Peer) -> f64| {
        let values: Vec<_> = peers.iter().map(|peer| (peer.name, value(peer))).collect();
        values
    };
    table.add(
        Row::new("ready after start, p50, over `--version`", p50[1], "ms")
            .floor(p50[0])
            .goal(Goal::AtMost(15.0))
            .peers(of_peers(|peer| peer.ready_after.as_secs_f64() * 1_000.0)),
    );
    // What it does at its start is over by then.
    std::thread::sleep(Duration::from_secs(plan.pick(0, 1, 1)));
    table.add(
        Row::new("memory, idle", server.memory_mib("VmRSS"), "MiB")
            .goal(Goal::AtMost(8.0))
            .peers(of_peers(|peer| memory_mib(peer.pid(), "VmRSS"))),
    );
    let size = |path: &std::path::Path| path.metadata().unwrap().len() as f64 / MIB;
    table.add(
        Row::new("binary, stripped", size(&plan.daemon), "MiB")
            // 12 MB are meant.
            .goal(Goal::AtMost(12e6 / MIB))
            .peers(peers.iter().map(|peer| (peer.name, size(&peer.program)))),
    );
}
