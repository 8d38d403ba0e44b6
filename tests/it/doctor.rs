//! `doctor`: what it looks at, and what it says of what is missing.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::support::binary::{Printed, command, run, start_scratch, start_server};
use crate::support::wrapped::ordinary_command;

fn doctor(scratch: &Path, arguments: &[&str]) -> Printed {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut command = command(scratch);
    command.arg("doctor").args(arguments);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", &address]);
    }
    run(&mut command)
}

/// One finding of `--json`.
fn finding(printed: &Printed, check: &str) -> Value {
    let report: Value = serde_json::from_str(&printed.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", printed.stdout, printed.stderr));
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|found| found["check"] == check);
    found
        .unwrap_or_else(|| panic!("no {check} in {report:#}"))
        .clone()
}

#[test]
fn a_machine_that_has_everything_gets_ok_for_each_and_status_0() {
    let scratch = start_scratch();
    let printed = doctor(scratch.path(), &[]);
    assert_eq!(printed.code, 0, "{}{}", printed.stdout, printed.stderr);
    assert!(
        !printed.stdout.contains('\u{1b}'),
        "no colour outside a terminal"
    );
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let lines = printed.stdout.lines().filter(|line| !line.starts_with(' '));
    let checks: Vec<&str> = lines
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    for check in [
        "workspace",
        "confinement",
        "process_control",
        "pidfd",
        "shell",
        "login_environment",
        "user",
        "journal",
        "sandbox",
        "state_dir",
        "key",
        "disk_workspace",
        "disk_state",
        "listen",
        "tls_roots",
        "proc",
        "descriptors",
        "processes",
        "memory",
        "clock",
        "time_zone",
    ] {
        assert!(
            checks.contains(&check),
            "{check} is not in {}",
            printed.stdout
        );
    }
    for check in checks {
        assert!(
            readme.contains(&format!("`{check}`")),
            "the README does not name `{check}`"
        );
    }
    // Looking changes nothing.
    assert!(!scratch.path().join("state").exists());
    let json = doctor(scratch.path(), &["--json"]);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (json.code, &report["ok"]),
        (0, &Value::Bool(true)),
        "{report:#}"
    );
}

#[test]
fn what_is_missing_is_named_with_the_way_to_get_it() {
    let scratch = start_scratch();
    let missing = |arguments: &[&str], check: &str, texts: &[&str]| {
        let printed = doctor(scratch.path(), &[&["--json"], arguments].concat());
        assert_eq!(printed.code, 1, "{check}: {}", printed.stdout);
        let found = finding(&printed, check);
        assert_eq!(found["status"], "missing", "{found:#}");
        for text in texts {
            assert!(found.to_string().contains(text), "{text}: {found:#}");
        }
    };
    missing(
        &["--workspace", "/no/such/place"],
        "workspace",
        &["/no/such/place", "--workspace"],
    );
    missing(
        &["--state-dir", "/proc/no/such"],
        "state_dir",
        &["/proc", "--state-dir", "BMA_ENVIRONMENT_KEY"],
    );
    missing(&["--key-file", "/no/such/key"], "key", &["/no/such/key"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // Somebody who is no executor answers at once.
    std::thread::spawn(move || taken.incoming().for_each(drop));
    missing(&["--listen", &address], "listen", &[&address, "--listen"]);
    let text = doctor(scratch.path(), &["--workspace", "/no/such/place"]);
    assert!(
        text.stdout.contains("missing  workspace") && text.stdout.contains(" -> "),
        "{}",
        text.stdout
    );
    assert_eq!(
        doctor(scratch.path(), &["--config", "/no/such/file"]).code,
        2
    );
}

#[test]
fn what_works_less_well_is_a_warning_and_status_0() {
    let scratch = start_scratch();
    let key = scratch.path().join("key");
    std::fs::write(&key, "a-key-that-others-can-read\n").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(scratch.path().join("home/.profile"), "exit 3\n").unwrap();
    let printed = doctor(
        scratch.path(),
        &["--json", "--key-file", key.to_str().unwrap()],
    );
    assert_eq!(printed.code, 0, "{}", printed.stdout);
    let found = finding(&printed, "key");
    assert!(
        found["status"] == "warning" && found["advice"].as_str().unwrap().starts_with("chmod 600"),
        "{found:#}"
    );
    assert!(!printed.stdout.contains("a-key-that"), "{}", printed.stdout);
    assert_eq!(finding(&printed, "login_environment")["status"], "warning");
}

#[test]
fn a_running_executor_is_found_and_left_alone() {
    let server = start_server(&[]);
    let mut doctor = command(server.scratch());
    let printed = run(doctor.args([
        "doctor",
        "--json",
        "--listen",
        &server.address().to_string(),
    ]));
    assert_eq!(printed.code, 0, "{}", printed.stdout);
    assert!(
        finding(&printed, "listen")
            .to_string()
            .contains("an executor answers")
    );
    assert!(
        finding(&printed, "state_dir")
            .to_string()
            .contains("held by")
    );
}

#[test]
fn an_ordinary_user_hears_of_a_workspace_that_cannot_be_written() {
    let scratch = start_scratch();
    let Some(mut command) = ordinary_command(&scratch) else {
        return;
    };
    let workspace = scratch.path().join("ws");
    std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o555)).unwrap();
    let printed = run(command.args(["doctor", "--json", "--no-key", "--listen", "127.0.0.1:0"]));
    std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o755)).unwrap();
    let found = finding(&printed, "workspace");
    assert!(
        found["status"] == "warning" && found.to_string().contains("--read-only"),
        "{found:#}"
    );
    assert_eq!(finding(&printed, "user")["status"], "ok");
    assert_eq!(finding(&printed, "proc")["status"], "ok");
}
