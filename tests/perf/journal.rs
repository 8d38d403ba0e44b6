//! The journal: what a call pays for it, and what a million calls leave behind.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bma_executor::journal::{Digest, Journal, SessionFacts, SessionJournal};
use bma_executor::limits::Limits;
use bma_executor::wire::{SessionId, ToolCallId};
use tempfile::TempDir;

use crate::plan::Plan;
use crate::table::{Goal, Row, Table};

const SESSIONS: usize = 100;

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let calls = plan.pick(1_000, 100_000, 1_000_000);
    let directory = TempDir::new().unwrap();
    let limits = Arc::new(Limits::default());
    let open = || Journal::open(directory.path(), Path::new("/workspace"), &limits);
    let (journal, _) = open();
    assert_eq!(journal.lost(), None);
    let sessions: Vec<_> = (0..SESSIONS).map(|at| session(&journal, at)).collect();
    let path = directory.path().join("journal");
    let size = || std::fs::metadata(&path).unwrap().len() as f64 / 1_048_576.0;
    let before = memory_mib();
    let (mut longest, mut most) = (0.0_f64, before);
    let mut digest: Digest = [0; 32];
    let result = [b'r'; 300];
    let begun = Instant::now();
    let mut waited = Duration::ZERO;
    for at in 0..calls {
        let (session, call) = (
            &sessions[at % SESSIONS],
            ToolCallId::new(&format!("call-{at}")).unwrap(),
        );
        digest[..8].copy_from_slice(&at.to_le_bytes());
        session.started(&call, &digest);
        session.finished(&call, &digest, Some(&result));
        session.delivered(&call);
        if at % 1_000 == 0 {
            // No harness acknowledges as fast as this loop does.
            let begun = Instant::now();
            journal.flush();
            waited += begun.elapsed();
        }
        if at % 10_000 == 0 {
            longest = longest.max(size());
            most = most.max(memory_mib());
        }
    }
    let cost = begun.elapsed().saturating_sub(waited).as_secs_f64() * 1e6 / calls as f64;
    let at_most = |what: &str, value, most, unit| {
        Row::new(&format!("journal, {what}"), value, unit).goal(Goal::AtMost(most))
    };
    table.add(at_most("cost for each call", cost, 50.0, "µs"));
    table.add(at_most(
        &format!("longest over {calls} calls"),
        longest,
        200.0,
        "MiB",
    ));
    table.add(at_most(
        &format!("memory over {calls} calls"),
        most - before,
        64.0,
        "MiB",
    ));
    journal.flush();
    journal.sever();
    let begun = Instant::now();
    let (_journal, recovered) = open();
    let start = begun.elapsed().as_secs_f64() * 1_000.0;
    let known: usize = recovered
        .sessions
        .iter()
        .map(|session| session.finished.len())
        .sum();
    table.add(at_most(
        &format!("start after them ({known} are known)"),
        start,
        2_000.0,
        "ms",
    ));
}

fn session(journal: &Journal, at: usize) -> SessionJournal {
    let facts = SessionFacts {
        id: SessionId::new(&format!("s-{at}")).unwrap(),
        workspace: None,
        has_env: false,
    };
    journal.session(facts, [0; 32])
}

fn memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib = line.trim().trim_end_matches(" kB");
    kib.parse::<f64>().unwrap() / 1_024.0
}
