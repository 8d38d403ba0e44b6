//! Searches and listings of trees that are shaped to harm: loops, depth, entries that resist, names and patterns that
//! look like options, directories of many entries (cases GLOB-03, GREP-01, LIST-01, LIST-02).

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, open, openat};
use serde_json::json;

use crate::support::binary::{start_large_scratch, start_scratch, start_server, start_server_in};
use crate::support::{slow_tests_run, start_executor};

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
}

/// Makes directories below each other, more than a path can name.
fn make_deep(at: &Path, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut dir = open(at, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&dir, "deep", Mode::RWXU).unwrap();
        dir = openat(&dir, "deep", flags, Mode::empty()).unwrap();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let file = openat(&dir, "end.txt", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&file, b"needle\n").unwrap();
}

#[tokio::test]
async fn loops_of_links_and_great_depth_end_soon_with_each_file_once() {
    let executor = start_executor();
    executor.write_file("d/f.txt", "needle\n");
    let root = executor.workspace();
    for (name, target) in [
        ("d/self", "."),
        ("d/up", ".."),
        ("a", "b"),
        ("b", "a"),
        ("class", "/sys/class"),
    ] {
        symlink(target, root.join(name)).unwrap();
    }
    std::fs::create_dir(root.join("x")).unwrap();
    make_deep(&root.join("x"), 2_000);
    let mut client = executor.connect().await;
    let begun = Instant::now();
    let found = client.call("glob", json!({"pattern": "**/*.txt"})).await;
    let lines: Vec<_> = found.check_done().data().lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "d/f.txt"), "{lines:?}");
    let found = client.call("grep", json!({"pattern": "needle"})).await;
    assert_eq!(found.check_done().details()["total"], 2);
    assert!(
        found.data().starts_with("d/f.txt:1:needle\n"),
        "{}",
        found.data()
    );
    let listed = client.call("list_files", json!({})).await;
    assert_eq!(
        listed.check_done().data(),
        "a -> b\nb -> a\nclass -> /sys/class\nd/\nx/"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    client
        .call("glob", json!({"pattern": "**", "path": "class"}))
        .await
        .check_tool_error(&["class", "outside"]);
    remove_deep(&root.join("x"));
}

/// Removes what is too deep for a path, from above: each level is moved up before its parent goes.
fn remove_deep(at: &Path) {
    let (one, other) = (at.join("deep"), at.join("moved"));
    while one.exists() {
        if one.join("deep").exists() {
            std::fs::rename(one.join("deep"), &other).unwrap();
        }
        std::fs::remove_dir_all(&one).unwrap();
        if other.exists() {
            std::fs::rename(&other, &one).unwrap();
        }
    }
}

#[tokio::test]
async fn a_tree_of_the_kernel_ends_before_its_deadline_or_says_that_it_did_not() {
    if !Path::new("/sys/class").is_dir() {
        println!("not run: there is no /sys/class");
        return;
    }
    let server = start_server(&["--no-key", "--workspace", "/sys/class"]);
    let mut client = server.connect().await;
    for (name, input) in [
        ("glob", json!({"pattern": "**/*.txt"})),
        ("grep", json!({"pattern": "needle"})),
        ("list_files", json!({})),
    ] {
        let begun = Instant::now();
        let id = client
            .send_call_with(name, input, json!({"deadline_ms": 2_000}))
            .await;
        let reply = client.expect_result(&id).await;
        assert!(
            begun.elapsed() < Duration::from_millis(2_600),
            "{name}: {:?}",
            begun.elapsed()
        );
        assert_eq!(
            reply.details()["partial"],
            reply.outcome() == "timed_out",
            "{:#}",
            reply.0
        );
    }
}

#[tokio::test]
async fn nothing_in_a_search_is_taken_for_an_option() {
    let executor = start_executor();
    let root = executor.workspace().to_owned();
    executor.write_file("opts.txt", "-world\n--pre=/x\na -> b\n--\n-f/etc/passwd\n");
    executor.write_file("-x.txt", "-world\n");
    executor.write_file("-r/in.txt", "-world\n");
    executor.write_file(
        "p.sh",
        format!("#!/bin/sh\ntouch {}/PWNED\n", root.display()),
    );
    std::fs::set_permissions(root.join("p.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    let script = format!("--pre={}/p.sh", root.display());
    let mut client = executor.connect().await;
    for (pattern, lines) in [
        ("-world", 3),
        ("->", 1),
        ("--", 2),
        ("--pre=/x", 1),
        ("-f/etc/passwd", 1),
        (&script, 0),
    ] {
        let found = client.call("grep", json!({"pattern": pattern})).await;
        assert_eq!(found.check_done().details()["total"], lines, "{pattern}");
    }
    let found = client
        .call("grep", json!({"pattern": "-world", "path": "-r"}))
        .await;
    assert_eq!(found.check_done().data(), "-r/in.txt:1:-world");
    let found = client
        .call("grep", json!({"pattern": "-world", "path": "-x.txt"}))
        .await;
    assert_eq!(found.check_done().data(), "-x.txt:1:-world");
    let found = client
        .call("grep", json!({"pattern": "-world", "include": script}))
        .await;
    assert_eq!(found.check_done().details()["total"], 0);
    assert!(
        found.notes().contains("filter") || found.data().contains("filter"),
        "{:#}",
        found.0
    );
    let found = client.call("glob", json!({"pattern": "-x*"})).await;
    assert_eq!(found.check_done().data(), "-x.txt");
    let listed = client.call("list_files", json!({"path": "-r"})).await;
    assert_eq!(listed.check_done().data(), "in.txt");
    client
        .call("grep", json!({"pattern": "x", "path": "--pre=p.sh"}))
        .await
        .check_tool_error(&["--pre=p.sh"]);
    assert!(!root.join("PWNED").exists());
}

#[tokio::test]
async fn entries_that_cannot_be_examined_are_listed_all_the_same() {
    let executor = start_executor();
    executor.write_file("ok.txt", "x");
    let root = executor.workspace();
    symlink("/nonexistent", root.join("broken")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    make_fifo(&root.join("p"));
    let mut client = executor.connect().await;
    let listed = client.call("list_files", json!({})).await;
    assert_eq!(
        listed.check_done().data(),
        "broken -> /nonexistent\nloop -> loop\nok.txt\np"
    );
    if rustix::process::geteuid().is_root() {
        println!("run as root: the modes of directories do not matter and were not tried");
        return;
    }
    executor.write_file("m/a.txt", "needle");
    executor.write_file("shut/b.txt", "needle");
    let mode = |name: &str, mode| {
        std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("m", 0o444);
    mode("shut", 0o000);
    let listed = client.call("list_files", json!({"path": "m"})).await;
    assert_eq!(listed.check_done().data(), "a.txt");
    client
        .call("list_files", json!({"path": "shut"}))
        .await
        .check_tool_error(&["shut", "ermission denied"]);
    for (name, input) in [
        ("grep", json!({"pattern": "needle"})),
        ("glob", json!({"pattern": "**/b.txt"})),
    ] {
        let found = client.call(name, input).await;
        assert!(
            found.check_done().details()["skipped"]["unreadable_total"].as_u64() > Some(0),
            "{:#}",
            found.0
        );
        assert!(
            format!("{}{}", found.data(), found.notes()).contains("shut"),
            "{:#}",
            found.0
        );
    }
    mode("m", 0o755);
    mode("shut", 0o755);
}

#[tokio::test]
async fn a_directory_that_is_removed_while_it_is_listed_is_an_answer() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for round in 0..5 {
        let directory = executor.workspace().join(format!("d{round}"));
        for at in 0..1_500 {
            let path = directory.join(format!("{at:04}"));
            std::fs::create_dir_all(path).unwrap();
        }
        let id = client
            .send_call("list_files", json!({"path": format!("d{round}")}))
            .await;
        std::fs::remove_dir_all(&directory).unwrap();
        let reply = client.expect_result(&id).await;
        assert_eq!(reply.outcome(), "succeeded", "{:#}", reply.0);
    }
    client.check_alive().await;
}

fn fill(directory: &Path, entries: usize) {
    std::fs::create_dir(directory).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = open(directory, flags, Mode::empty()).unwrap();
    for at in 0..entries {
        let flags = OFlags::WRONLY | OFlags::CREATE;
        openat(&dir, format!("{at:0200}"), flags, Mode::RUSR).unwrap();
    }
}

#[tokio::test]
async fn a_listing_is_whole_up_to_its_limit_and_says_above_how_much_there_is() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    fill(&executor.workspace().join("all"), 2_000);
    fill(&executor.workspace().join("more"), 2_001);
    let listed = client.call("list_files", json!({"path": "all"})).await;
    let details = listed.check_done().details();
    assert_eq!(
        (&details["entries"], &details["truncated"]),
        (&json!(2_000), &json!(false))
    );
    assert_eq!(listed.notes(), "");
    let listed = client.call("list_files", json!({"path": "more"})).await;
    let details = listed.check_done().details();
    assert_eq!(
        (&details["entries"], &details["truncated"]),
        (&json!(2_000), &json!(true))
    );
    assert_eq!(
        (&details["total"], &details["total_is_exact"]),
        (&json!(2_001), &json!(true))
    );
    assert!(
        listed.notes().contains("2001") && listed.notes().contains("glob"),
        "{}",
        listed.notes()
    );
    let again = client.call("list_files", json!({"path": "more"})).await;
    assert_eq!(again.data(), listed.data());
}

#[tokio::test]
async fn a_directory_of_300_000_entries_holds_up_nobody() {
    if !slow_tests_run() {
        return;
    }
    let scratch = start_large_scratch();
    fill(&scratch.path().join("ws/huge"), 300_000);
    let server = start_server_in(scratch, &["--no-key"]);
    let mut client = server.connect().await;
    client.bash("true").await.check_done();
    let listing = client
        .send_call("list_files", json!({"path": "huge"}))
        .await;
    let begun = Instant::now();
    client.check_alive().await;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "echo took {:?}",
        begun.elapsed()
    );
    let listed = client.expect_result(&listing).await;
    assert_eq!(listed.check_done().details()["total"], 300_000);
    assert!(
        listed.data().len() < 500_000,
        "{} bytes",
        listed.data().len()
    );
    // The rest is reached by a pattern.
    let rest = client
        .call("glob", json!({"pattern": "huge/*299_99?".replace('_', "")}))
        .await;
    assert_eq!(rest.check_done().details()["total"], 10);
}

#[tokio::test]
async fn a_costly_pattern_on_a_long_line_is_stopped_and_frees_its_worker() {
    let scratch = start_scratch();
    let ws = scratch.path().join("ws");
    let mut text = format!("{}c\n", "a".repeat(302)).into_bytes();
    text.extend((0..20_000_000_u32).map(|n| b'a' + (n.wrapping_mul(n) >> 7 & 1) as u8));
    std::fs::write(ws.join("a.txt"), text).unwrap();
    let server = start_server_in(scratch, &["--no-key"]);
    let mut client = server.connect().await;
    for (deadline, cancel) in [(Some(1_000), None), (None, Some(1_000))] {
        let begun = Instant::now();
        let input = json!({"pattern": "[ab]*a[ab]{300}c"});
        let id = client
            .send_call_with("grep", input, json!({"deadline_ms": deadline}))
            .await;
        if let Some(after) = cancel {
            tokio::time::sleep(Duration::from_millis(after)).await;
            client.send_cancel(&id).await;
        }
        let reply = client.expect_result(&id).await;
        assert!(
            begun.elapsed() < Duration::from_millis(1_500),
            "{:?}",
            begun.elapsed()
        );
        let expected = if cancel.is_some() {
            "cancelled"
        } else {
            "timed_out"
        };
        assert_eq!(reply.outcome(), expected, "{:#}", reply.0);
        // What was found before the stop is handed over, and is said to be a part.
        assert!(reply.data().starts_with("a.txt:1:"), "{:#}", reply.0);
        assert_eq!(reply.details()["partial"], true);
        assert!(reply.notes().contains("partial"), "{}", reply.notes());
        server.expect_idle().await;
    }
}
