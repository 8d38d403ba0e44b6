//! Huge files and huge lines with the real binary: bounded memory, bounded time, and answers to others meanwhile
//! (case READ-04).

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::binary::{Server, start_server};
use crate::support::{Client, slow_tests_run};

const MIB: usize = 1 << 20;

/// Longest that a call on a whole huge file may take: the machine may be busy and the build unoptimised.
const LONG: Duration = Duration::from_mins(1);

/// Writes lines of 80 bytes, each with its number.
fn put_lines(path: &Path, lines: u64) {
    let mut file = std::io::BufWriter::with_capacity(MIB, std::fs::File::create(path).unwrap());
    let filler = "the rest of a line that is eighty bytes long, its end included......";
    for line in 1..=lines {
        writeln!(file, "{line:010} {filler}").unwrap();
    }
    file.flush().unwrap();
}

/// Waits for results while pinging; fails where a pong takes a second.
async fn expect_answers(client: &mut Client, ids: &[String]) -> Vec<crate::support::Reply> {
    let until = Instant::now() + LONG;
    let mut replies = Vec::new();
    for id in ids {
        loop {
            let pong = client.ping().await;
            assert!(pong < Duration::from_secs(1), "a pong took {pong:?}");
            if let Some(reply) = client.take_result(id).await {
                replies.push(reply);
                break;
            }
            assert!(Instant::now() < until, "{id} has no result after {LONG:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    replies
}

fn check_memory(server: &Server, before: f64) {
    let peak = server.memory_mib("VmHWM");
    println!("peak {peak} MiB, before {before} MiB");
    assert!(
        peak <= before + 64.0,
        "{peak} MiB at the peak, {before} MiB before"
    );
}

#[tokio::test]
async fn a_window_of_three_gigabytes_takes_neither_memory_nor_time() {
    if !slow_tests_run() {
        return;
    }
    let server = start_server(&["--no-key"]);
    let lines = 37_500_000;
    put_lines(&server.workspace().join("huge"), lines);
    let long_line = vec![b'x'; 200 * MIB];
    std::fs::write(server.workspace().join("line"), &long_line).unwrap();
    drop(long_line);
    let mut client = server.connect().await;
    client.check_alive().await;
    let before = server.memory_mib("VmRSS");
    let begun = Instant::now();
    let reply = client
        .call("read", json!({"path": "huge", "offset": 1, "limit": 10}))
        .await;
    let taken = begun.elapsed();
    assert!(
        taken < Duration::from_secs(1),
        "the first window took {taken:?}"
    );
    let first: Vec<&str> = reply.check_done().data().lines().collect();
    assert_eq!(first.len(), 10);
    assert!(
        first[9].starts_with("0000000010 ") && first[9].len() == 79,
        "{first:?}"
    );
    assert!(reply.notes().contains("offset 11"), "{}", reply.notes());
    let mut ids = Vec::new();
    for input in [
        json!({"path": "huge", "offset": 30_000_000, "limit": 2}),
        json!({"path": "line"}),
        json!({"path": "huge", "offset": lines + 1}),
        json!({"path": "line", "limit": 1}),
    ] {
        ids.push(client.send_call("read", input).await);
    }
    let replies = expect_answers(&mut client, &ids).await;
    let far = replies[0].check_done().data();
    assert!(
        far.starts_with("0030000000 ") && far.contains("\n0030000001 "),
        "{far}"
    );
    for clipped in [&replies[1], &replies[3]] {
        let data = clipped.check_done().data();
        assert_eq!(data.len(), 64 << 10);
        assert_eq!(clipped.details()["clipped_lines"], 1);
        assert!(
            clipped.notes().contains("209715200 bytes"),
            "{}",
            clipped.notes()
        );
    }
    replies[2].check_tool_error(&["past the end", &lines.to_string()]);
    check_memory(&server, before);
}

#[tokio::test]
async fn edits_of_fifty_megabytes_end_soon_and_pings_are_answered_meanwhile() {
    if !slow_tests_run() {
        return;
    }
    let server = start_server(&["--no-key"]);
    let path = server.workspace().join("big");
    let mut client = server.connect().await;
    client.check_alive().await;
    let line = "a line of a large file that an edit has to leave exactly as it was found here..\n";
    let mut unique = line.repeat(50 * MIB / line.len());
    unique.push_str("the last of all lines\n");
    let filler = "x".repeat(870);
    let many: String = (0..60_000)
        .map(|at| format!("{at} needle {filler}\n"))
        .collect();
    let cases = [
        (
            unique.replace("the last of all", "the very end of"),
            unique,
            "the last of all",
            "the very end of",
            1,
        ),
        (
            many.replace("needle", "thread of wool"),
            many,
            "needle",
            "thread of wool",
            60_000,
        ),
    ];
    for (expected, content, old, new, count) in cases {
        std::fs::write(&path, &content).unwrap();
        let begun = Instant::now();
        let input =
            json!({"path": "big", "old_string": old, "new_string": new, "replace_all": count > 1});
        let id = client.send_call("edit", input).await;
        let replies = expect_answers(&mut client, &[id]).await;
        let taken = begun.elapsed();
        println!("{count} replacements in {} bytes: {taken:?}", content.len());
        replies[0].check_done();
        assert_eq!(replies[0].details()["replacements"], count);
        assert!(std::fs::read(&path).unwrap() == expected.as_bytes());
        // The goal is for a release build; one that is not optimised only must not be hopeless.
        let goal = if cfg!(debug_assertions) { 10 } else { 2 };
        assert!(taken < Duration::from_secs(goal), "{taken:?}");
    }
}
