//! The admin port: whether the daemon lives, is ready, and what it counts.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bma_executor::process::unmarked;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::SOON;
use crate::support::binary::{command, run, start_scratch};
use crate::support::watched::{Log, exchange, expect_page, get, start_watched};

/// The series of a page, after a look at its form.
fn series(page: &str) -> BTreeMap<String, f64> {
    let mut kinds = BTreeMap::new();
    let mut series = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(
                kind == "counter",
                name.ends_with("_total"),
                "{name} is a {kind}"
            );
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none());
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let bare = name.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| bare.strip_suffix(end))
                .unwrap_or(bare);
            assert!(kinds.contains_key(family), "{line} has no type");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(series.insert(name.to_owned(), value).is_none(), "{line}");
        }
    }
    series
}

#[tokio::test]
async fn the_metrics_count_calls_by_tool_and_outcome_and_name_nothing_of_the_peers() {
    let watched = start_watched(&["--disable", "glob"]);
    let mut client = watched.server.connect().await;
    client.bash("sleep 300 & echo out").await.check_done();
    client.call("read", json!({"path": "no-such-file"})).await;
    client.call("no-such-tool", json!({})).await;
    client.call("glob", json!({"pattern": "*"})).await;
    client
        .send_text(r#"{"method":"no.such.method","params":{}}"#)
        .await;
    client.expect("protocol.error").await;
    client
        .send_text(r#"{"method":"tool.call","params":{"session_id":"s-1","tool_call_id":"x","name":"bash"}}"#)
        .await;
    client.expect_result("x").await;
    let (status, page) = get(watched.admin, "/metrics");
    assert_eq!(status, 200);
    let series = series(&page);
    let of = |name: &str| {
        *series
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {page}"))
    };
    for (name, value) in [
        (r#"calls_total{tool="bash",outcome="succeeded"}"#, 1.0),
        (r#"calls_total{tool="read",outcome="succeeded"}"#, 1.0),
        (r#"calls_total{tool="glob",outcome="failed"}"#, 1.0),
        (r#"calls_total{tool="unknown",outcome="failed"}"#, 2.0),
        (r#"tool_errors_total{tool="read"}"#, 1.0),
        (r#"refused_total{reason="unknown_tool"}"#, 1.0),
        (r#"refused_total{reason="tool_not_offered"}"#, 1.0),
        (r#"refused_total{reason="unknown_method"}"#, 1.0),
        (r#"refused_total{reason="invalid_input"}"#, 1.0),
        (r#"call_duration_seconds_count{tool="bash"}"#, 1.0),
        (
            r#"call_duration_seconds_bucket{tool="bash",le="+Inf"}"#,
            1.0,
        ),
        ("running_calls", 0.0),
        ("sessions", 1.0),
        ("connections", 1.0),
        ("background_processes", 1.0),
        (r#"journal_mode{mode="memory"}"#, 1.0),
        ("reconnects_total", 0.0),
    ] {
        assert_eq!(of(&format!("bma_executor_{name}")), value, "{name}");
    }
    assert!(of("bma_executor_received_bytes_total") > 300.0);
    assert!(of("bma_executor_sent_bytes_total") > 1_000.0);
    let resident = of("process_resident_memory_bytes");
    assert!((1e6..1e9).contains(&resident), "{resident}");
    assert!((3.0..500.0).contains(&of("process_open_fds")));
    assert!(of("process_start_time_seconds") > 1.7e9);
    let version = format!(r#"version="{}""#, env!("CARGO_PKG_VERSION"));
    assert!(page.contains(&version));
    assert!(!page.contains("no-such") && !page.contains("no.such"));
    assert!(series.len() < 400, "{} series", series.len());
}

#[tokio::test]
async fn calls_that_run_are_shown_and_the_histogram_is_cumulative() {
    let watched = start_watched(&[]);
    let mut client = watched.server.connect().await;
    let id = client
        .send_call("bash", json!({"command": "sleep 7461"}))
        .await;
    expect_page(
        watched.admin,
        "/metrics",
        200,
        "bma_executor_running_calls 1\n",
    );
    client.send_cancel(&id).await;
    client.expect_result(&id).await;
    for _ in 0..20 {
        client.bash("true").await.check_done();
    }
    let page = expect_page(
        watched.admin,
        "/metrics",
        200,
        "bma_executor_running_calls 0\n",
    );
    let buckets: Vec<f64> = page
        .lines()
        .filter(|line| line.starts_with("bma_executor_call_duration_seconds_bucket{tool=\"bash\""))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(buckets.is_sorted(), "{buckets:?}");
    assert_eq!(buckets.last(), Some(&21.0));
    assert!(page.contains(r#"calls_total{tool="bash",outcome="cancelled"} 1"#));
}

#[tokio::test]
async fn readiness_ends_with_the_stop_and_with_the_workspace_and_says_why() {
    let mut watched = start_watched(&["--drain-timeout", "30s"]);
    let ready = expect_page(watched.admin, "/readyz", 200, "");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["ready"], true, "{ready}");
    // A journal in memory is a lesser mode, and ready all the same.
    assert!(
        ready["notes"][0].as_str().unwrap().contains("journal"),
        "{ready}"
    );
    assert_eq!(get(watched.admin, "/livez"), (200, "ok\n".to_owned()));
    let mut client = watched.server.connect().await;
    client
        .send_call("bash", json!({"command": "sleep 7462"}))
        .await;
    expect_page(
        watched.admin,
        "/metrics",
        200,
        "bma_executor_running_calls 1\n",
    );
    let workspace = watched.server.workspace();
    std::fs::remove_dir(&workspace).unwrap();
    expect_page(watched.admin, "/readyz", 503, "workspace was removed");
    std::fs::create_dir(&workspace).unwrap();
    watched.server.send_signal(Signal::TERM);
    expect_page(watched.admin, "/readyz", 503, "stops");
    assert_eq!(get(watched.admin, "/livez").0, 200);
    watched.server.send_signal(Signal::TERM);
    assert_eq!(watched.server.expect_end(SOON).0, Some(0));
}

#[tokio::test]
async fn slow_and_broken_clients_hold_nobody_up() {
    let watched = start_watched(&[]);
    let before = "GET /livez HTTP/1.1\r\nHost: it\r\nX-Slow: ";
    let mut slow: Vec<TcpStream> = Vec::new();
    for number in 0..60 {
        let mut stream = TcpStream::connect(watched.admin).unwrap();
        // Silent ones, slow ones, ones that never read.
        if number % 3 == 1 {
            stream.write_all(before.as_bytes()).unwrap();
        } else if number % 3 == 2 {
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n")
                .unwrap();
        }
        slow.push(stream);
    }
    let begun = Instant::now();
    assert_eq!(get(watched.admin, "/livez").0, 200);
    // Waiting for the slow ones would take their whole time.
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    for garbage in [
        &b"\0\xff\xfe garbage\r\n\r\n"[..],
        b"GET",
        b"BREW /livez COFFEE/1.0\r\n\r\n",
        format!("GET /livez HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 << 10)).as_bytes(),
        format!("GET /{} HTTP/1.1\r\nHost: it\r\n\r\n", "x".repeat(64 << 10)).as_bytes(),
        b"POST /livez HTTP/1.1\r\nHost: it\r\nContent-Length: 999999999\r\n\r\nabc",
    ] {
        let mut stream = TcpStream::connect(watched.admin).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        // The other side may close before it has all of it.
        let _cut = stream.write_all(garbage);
        let _half = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(get(watched.admin, "/nothing").0, 404);
    assert!(exchange(watched.admin, b"POST /livez HTTP/1.1\r\nHost: it\r\n\r\n").contains(" 405 "));
    watched
        .server
        .connect()
        .await
        .bash("true")
        .await
        .check_done();
    // Their time is over: the daemon closes them all.
    let until = Instant::now() + SOON;
    for mut stream in slow {
        stream
            .set_read_timeout(Some(until.saturating_duration_since(Instant::now())))
            .unwrap();
        let mut waste = Vec::new();
        if let Err(error) = stream.read_to_end(&mut waste) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
    }
}

#[test]
fn the_admin_port_is_off_by_default_on_loopback_and_says_what_is_in_its_way() {
    let scratch = start_scratch();
    let serve = |arguments: &[&str]| {
        let mut serve = command(scratch.path());
        run(serve
            .args(["serve", "--no-key", "--listen", "127.0.0.1:0"])
            .args(arguments))
    };
    let exposed = serve(&["--admin-listen", "0.0.0.0:0"]);
    assert_eq!(exposed.code, 2, "{}", exposed.stderr);
    assert!(
        exposed.stderr.contains("`admin_listen` is 0.0.0.0:0")
            && exposed.stderr.contains("admin_expose")
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let taken = serve(&["--admin-listen", &address]);
    assert_eq!(
        (taken.code, taken.stdout.as_str()),
        (1, ""),
        "{}",
        taken.stderr
    );
    assert!(taken.stderr.contains(&address) && taken.stderr.contains("--admin-listen"));
}

/// A dialler with an admin port.
fn start_dialler(url: &str) -> (std::process::Child, tempfile::TempDir, SocketAddr) {
    let scratch = start_scratch();
    let mut dialler = command(scratch.path());
    let dialler = dialler
        .args([
            "connect",
            "--harness-url",
            url,
            "--admin-listen",
            "127.0.0.1:0",
        ])
        .env("BMA_ENVIRONMENT_KEY", "a-key-for-the-harness")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = unmarked(|| dialler.spawn()).unwrap();
    let admin = Log::of(child.stderr.take().unwrap()).expect_admin();
    (child, scratch, admin)
}

#[test]
fn a_dialler_without_its_harness_is_not_ready_and_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 1024];
            let _read = stream.read(&mut head);
            let _sent =
                stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\nSECRET");
        }
    });
    for (url, why) in [
        ("ws://127.0.0.1:1/".to_owned(), "nobody answers there"),
        (
            "ws://no-such-host.invalid/".to_owned(),
            "the name cannot be resolved",
        ),
        (format!("ws://{refusing}/"), "refuses the credentials"),
    ] {
        let (mut child, _scratch, admin) = start_dialler(&url);
        let page = expect_page(admin, "/readyz", 503, why);
        assert!(!page.contains("SECRET"), "{page}");
        assert_eq!(get(admin, "/livez").0, 200);
        expect_page(admin, "/metrics", 200, "bma_executor_dial_failures_total ");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
}
