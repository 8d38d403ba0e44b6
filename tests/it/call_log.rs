//! The log has one line for each call, at its end, with what an operator needs to find it again.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::start_server;
use crate::support::{Client, SOON};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The lines about calls, in order.
fn calls(log: &str) -> Vec<Value> {
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")))
        .filter(|line| line["message"] == "call ended")
        .collect()
}

/// Calls that end in every way there is, one after the other.
async fn make_calls(mut client: Client) {
    client.bash("exit 3").await;
    client
        .call("bash", json!({"command": "sleep 7464", "timeout_ms": 50}))
        .await;
    client.call("read", json!({"path": "missing"})).await;
    client.call("glob", json!({"pattern": "*"})).await;
    client.call("no-such-tool", json!({})).await;
    client.call("bash", json!({})).await;
    client
        .send_text(r#"{"method":"tool.call","params":{"session_id":"s-1","tool_call_id":"broken","name":7}}"#)
        .await;
    client.expect_result("broken").await;
    let running = client
        .send_call("bash", json!({"command": "sleep 7465"}))
        .await;
    client
        .call("list_files", json!({}))
        .await
        .check_failed("overloaded", &[]);
    client.send_cancel(&running).await;
    client.expect_result(&running).await;
    let late = client
        .send_call_with(
            "bash",
            json!({"command": "sleep 7466"}),
            json!({"deadline_ms": 100}),
        )
        .await;
    client.expect_result(&late).await;
}

#[tokio::test]
async fn every_call_has_one_line_whatever_became_of_it() {
    let mut server = start_server(&[
        "--no-key",
        "--log-format",
        "json",
        "--disable",
        "glob",
        "--max-concurrent-calls",
        "1",
    ]);
    make_calls(server.connect().await).await;
    server.send_signal(Signal::TERM);
    let (_, log) = server.expect_end(SOON);
    let mut calls = calls(&log);
    // A result is on its way before its line is written, so that the lines of two calls may change places.
    let name = |line: &Value| line["call"].as_str().unwrap().to_owned();
    calls.sort_by_key(|line| (name(line).len(), name(line)));
    let shown: Vec<(&str, &str, Option<&str>, Option<&str>)> = calls
        .iter()
        .map(|line| {
            (
                line["tool"].as_str().unwrap(),
                line["outcome"].as_str().unwrap(),
                line["error"].as_str(),
                line["cause"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("bash", "succeeded", None, Some("exited")),
            ("bash", "succeeded", None, Some("timeout")),
            ("read", "succeeded", None, None),
            ("glob", "failed", Some("tool_not_offered"), None),
            ("unknown", "failed", Some("unknown_tool"), None),
            ("bash", "failed", Some("invalid_input"), None),
            ("bash", "cancelled", Some("cancelled"), Some("cancelled")),
            ("list_files", "failed", Some("overloaded"), None),
            (
                "bash",
                "timed_out",
                Some("deadline_exceeded"),
                Some("deadline")
            ),
            ("unknown", "failed", Some("invalid_input"), None),
        ],
        "{log}"
    );
    let timeout = &calls[1];
    assert!(timeout["duration_ms"].as_u64().unwrap() >= 50, "{timeout}");
    assert!(
        timeout["bytes"].as_u64().unwrap() > 100 && timeout["is_error"] == true,
        "{timeout}"
    );
    assert!(
        timeout["timestamp"].is_string() && timeout["session"] == "s-1",
        "{timeout}"
    );
    // A call that waited for nothing has no time of waiting.
    assert!(
        calls
            .iter()
            .all(|line| line["queued_ms"].is_null() || line["queued_ms"].as_u64() > Some(0))
    );
}

#[tokio::test]
async fn the_trace_of_a_call_is_in_its_line_and_a_wrong_one_is_ignored() {
    let mut server = start_server(&["--no-key", "--log-format", "json"]);
    let mut client = server.connect().await;
    for traceparent in [
        json!(format!("00-{TRACE}-{PARENT}-01")),
        json!(format!("00-{}-{PARENT}-01", TRACE.to_uppercase())),
        json!(17),
        json!({"an": "object"}),
        Value::Null,
    ] {
        let further = json!({ "traceparent": traceparent });
        let id = client
            .send_call_with("list_files", json!({}), further)
            .await;
        client.expect_result(&id).await.check_done();
    }
    // Refused calls have theirs too.
    let further = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-00"), "permission": {"decision": "deny"} });
    let id = client
        .send_call_with("list_files", json!({}), further)
        .await;
    client
        .expect_result(&id)
        .await
        .check_failed("permission_denied", &[]);
    server.send_signal(Signal::TERM);
    let (_, log) = server.expect_end(SOON);
    let calls = calls(&log);
    let traced: Vec<bool> = calls
        .iter()
        .map(|line| line["trace_id"] == TRACE && line["parent_id"] == PARENT)
        .collect();
    assert_eq!(traced, [true, false, false, false, false, true], "{log}");
    assert!(
        calls[1]["trace_id"].is_null() && calls[2]["trace_id"].is_null(),
        "{log}"
    );
}
