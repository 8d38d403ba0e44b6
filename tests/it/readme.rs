//! What the README says of logs and metrics is what the daemon does.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::SOON;
use crate::support::watched::{get, start_watched};

fn section(title: &str) -> String {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, rest) = readme
        .split_once(&format!("\n## {title}\n"))
        .unwrap_or_else(|| panic!("no section {title}"));
    rest.split("\n## ").next().unwrap().to_owned()
}

/// The names in the first column of a section's tables.
fn first_column(section: &str) -> Vec<&str> {
    section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect()
}

#[tokio::test]
async fn the_readme_names_every_metric_and_no_other() {
    let watched = start_watched(&[]);
    let (_, page) = get(watched.admin, "/metrics");
    let mut families: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let section = section("Metrics and health");
    let mut named: Vec<&str> = first_column(&section)
        .into_iter()
        .filter(|name| name.contains('_'))
        .collect();
    families.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, families);
}

#[tokio::test]
async fn the_readme_names_every_field_of_a_calls_line() {
    let mut watched = start_watched(&["--log-format", "json"]);
    let mut client = watched.server.connect().await;
    let trace = json!({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "deadline_ms": 50});
    let id = client
        .send_call_with("bash", json!({"command": "sleep 7468"}), trace)
        .await;
    client.expect_result(&id).await;
    watched.server.send_signal(Signal::TERM);
    watched.server.expect_end(SOON);
    let line: Value = serde_json::from_str(&watched.log.expect_line("call ended")).unwrap();
    let section = section("Logs");
    let named = first_column(&section);
    for field in line.as_object().unwrap().keys() {
        assert!(
            named.contains(&field.as_str()),
            "`{field}` is not in {named:?}"
        );
    }
    for field in [
        "session",
        "call",
        "tool",
        "outcome",
        "is_error",
        "error",
        "cause",
        "duration_ms",
        "queued_ms",
        "bytes",
        "trace_id",
        "parent_id",
    ] {
        assert!(named.contains(&field), "the README does not name `{field}`");
    }
}
