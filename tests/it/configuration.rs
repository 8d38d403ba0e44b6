//! Settings: where each comes from, and what a running daemon takes of new ones.

use std::path::Path;

use bma_executor::config::{Config, KEYS, Settings};
use clap::Args as _;
use rustix::process::Signal;
use serde_json::json;

use crate::support::SOON;
use crate::support::binary::{command, run, start_scratch, start_server_in};

#[test]
fn config_prints_every_setting_with_where_it_comes_from() {
    let scratch = start_scratch();
    let file = scratch.path().join("c.toml");
    std::fs::write(
        &file,
        "listen = \"127.0.0.1:1234\"\ndisable = [\"grep\"]\nbash_timeout = \"3m\"\n",
    )
    .unwrap();
    let mut config = command(scratch.path());
    let config = config
        .args([
            "config",
            "--config",
            file.to_str().unwrap(),
            "--bash-timeout",
            "4m",
            "--read-only",
        ])
        .env("BMA_EXECUTOR_SESSION_TTL", "90s")
        .env("BMA_EXECUTOR_ALLOW_ORIGIN", "https://a.test,https://b.test")
        .env("BMA_ENVIRONMENT_KEY", "a-secret-that-is-not-shown")
        .env(
            "BMA_HARNESS_URL",
            "wss://SECRET:SECRET@host:99/SECRET?SECRET=SECRET",
        );
    let printed = run(config);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let from_file = format!("file {}", file.display());
    for line in [
        &*format!("listen = \"127.0.0.1:1234\"  # {from_file}"),
        &format!("disable = [\"grep\"]  # {from_file}"),
        "bash_timeout = \"4m\"  # flag --bash-timeout",
        "read_only = true  # flag --read-only",
        "session_ttl = \"1m 30s\"  # variable BMA_EXECUTOR_SESSION_TTL",
        "allow_origin = [\"https://a.test\", \"https://b.test\"]  # variable BMA_EXECUTOR_ALLOW_ORIGIN",
        "harness_url = \"wss://host:99\"  # variable BMA_HARNESS_URL",
        "kill_grace = \"2s\"  # default",
        "# key_file is not set",
        "# the key: from the variable BMA_ENVIRONMENT_KEY",
    ] {
        assert!(
            printed.stdout.lines().any(|printed| printed == line),
            "{line} is not in {}",
            printed.stdout
        );
    }
    assert!(
        !printed.stdout.to_lowercase().contains("secret"),
        "{}",
        printed.stdout
    );
    // What is printed is a configuration that means the same.
    std::fs::write(&file, &printed.stdout).unwrap();
    let settings =
        Settings::from_file(&file).unwrap_or_else(|error| panic!("{error}: {}", printed.stdout));
    let config = Config::new(settings).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:1234");
    assert_eq!(config.limits.session_ttl.as_secs(), 90);
}

#[test]
fn every_flag_is_a_setting_of_the_table_and_of_the_file() {
    let settings = Settings::augment_args(clap::Command::new("it"));
    let mut flags: Vec<&str> = settings
        .get_arguments()
        .map(|flag| flag.get_id().as_str())
        .collect();
    let mut keys: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    flags.sort_unstable();
    keys.sort_unstable();
    assert_eq!(flags, keys);
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for key in &KEYS {
        let mark = if key.reloads { "yes" } else { "restart" };
        let row = format!("| `{}` | {mark} |", key.name);
        assert!(
            readme.contains(&row),
            "the README has no row that begins with {row}"
        );
    }
}

#[test]
fn a_wrong_setting_is_status_2_and_names_key_value_and_what_was_expected() {
    let scratch = start_scratch();
    let file = scratch.path().join("c.toml");
    let serve = |arguments: &[&str]| {
        let mut serve = command(scratch.path());
        run(serve.args(["serve"]).args(arguments))
    };
    for (line, texts) in [
        ("lisen = \"x\"", &["line 1", "lisen", "listen"][..]),
        (
            "\nlisten = \"x\"",
            &["line 2", "`listen`", "`x`", "127.0.0.1:8787"],
        ),
        ("admin_listen = 7", &["`admin_listen`", "7", "string"]),
        ("admin_expose = \"x\"", &["`admin_expose`", "boolean"]),
        (
            "max_concurrent_calls = 0",
            &["`max_concurrent_calls` is 0", "1 to 10000"],
        ),
        (
            "max_concurrent_calls = \"many\"",
            &["max_concurrent_calls", "many"],
        ),
        ("kill_grace = \"2\"", &["kill_grace", "`2`", "unit"]),
        ("background = \"x\"", &["background", "`x`", "keep"]),
        ("log_level = \"loud\"", &["log_level", "`loud`", "debug"]),
        ("listen = ", &["line 1"]),
    ] {
        std::fs::write(&file, line).unwrap();
        let wrong = serve(&["--config", file.to_str().unwrap()]);
        assert_eq!(
            (wrong.code, wrong.stderr.lines().count()),
            (2, 1),
            "{line}: {}",
            wrong.stderr
        );
        for text in texts {
            assert!(
                wrong.stderr.contains(text),
                "{line}: {text} is not in {}",
                wrong.stderr
            );
        }
    }
    for (flag, texts) in [
        (
            ["--listen", "x"],
            &["--listen", "'x'", "127.0.0.1:8787"][..],
        ),
        (
            ["--admin-listen", "localhost"],
            &["--admin-listen", "'localhost'", "127.0.0.1:8787"],
        ),
        (
            ["--max-concurrent-calls", "-"],
            &["--max-concurrent-calls", "whole number"],
        ),
        (["--kill-grace", "2"], &["--kill-grace", "'2'", "unit"]),
        (["--disable", "bsah"], &["--disable", "'bsah'", "bash"]),
    ] {
        let wrong = serve(&flag);
        assert_eq!(wrong.code, 2, "{flag:?}: {}", wrong.stderr);
        for text in texts {
            assert!(
                wrong.stderr.contains(text),
                "{flag:?}: {text} is not in {}",
                wrong.stderr
            );
        }
    }
}

#[tokio::test]
async fn a_hangup_says_by_key_what_has_changed_and_what_needs_a_restart() {
    let scratch = start_scratch();
    let file = scratch.path().join("c.toml");
    std::fs::write(&file, "").unwrap();
    let path = file.to_str().unwrap().to_owned();
    let mut server = start_server_in(
        scratch,
        &["--no-key", "--log-format", "json", "--config", &path],
    );
    let log = server.take_log();
    let mut client = server.connect().await;
    server.send_signal(Signal::HUP);
    log.expect_line("nothing is different");
    let secret = "bash_timeout = \"3m\"\nharness_url = \"ws://SECRET@host/\"\n";
    std::fs::write(
        &file,
        format!("disable = [\"glob\"]\nlog_level = \"warn\"\n{secret}"),
    )
    .unwrap();
    server.send_signal(Signal::HUP);
    let restart = log.expect_line("need a restart");
    assert!(
        restart.contains("\"keys\":\"harness_url, bash_timeout\""),
        "{restart}"
    );
    client
        .call("glob", json!({"pattern": "*"}))
        .await
        .check_failed("tool_not_offered", &[]);
    // The lines of calls are below the new level; and back again, with what still differs named again.
    std::fs::write(
        &file,
        format!("disable = [\"glob\"]\nlog_level = \"debug\"\n{secret}"),
    )
    .unwrap();
    server.send_signal(Signal::HUP);
    let changed = log.expect_line("the configuration was read again\"");
    assert!(changed.contains("\"changed\":\"log_level\""), "{changed}");
    client.call("list_files", json!({})).await.check_done();
    log.expect_line("\"tool\":\"list_files\"");
    std::fs::write(&file, "log_level = \"loud\"").unwrap();
    server.send_signal(Signal::HUP);
    assert!(log.expect_line("was not reloaded").contains("loud"));
    let text = log.text();
    assert_eq!(text.matches("need a restart").count(), 2, "{text}");
    assert!(
        !text.contains("\"tool\":\"glob\"") && !text.contains("SECRET"),
        "{text}"
    );
    server.send_signal(Signal::TERM);
    assert_eq!(server.expect_end(SOON).0, Some(0));
}
