//! `healthcheck`: one question, one sentence, exit status 0 or 1, in bounded time.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::SOON;
use crate::support::binary::{Printed, command, run, start_scratch, start_server};
use crate::support::watched::{expect_page, start_watched};

fn check(arguments: &[&str]) -> Printed {
    let scratch = start_scratch();
    run(command(scratch.path()).arg("healthcheck").args(arguments))
}

#[test]
fn without_an_admin_port_the_listening_address_is_asked() {
    let server = start_server(&[]);
    let address = server.address().to_string();
    let healthy = check(&["--listen", &address]);
    assert_eq!(healthy.code, 0, "{}", healthy.stderr);
    assert_eq!(
        healthy.stdout,
        format!("an executor answers on {address}\n")
    );
    // As in a container, where the daemon listens on every interface.
    let port = server.address().port();
    assert_eq!(check(&["--listen", &format!("0.0.0.0:{port}")]).code, 0);
    let ready = check(&["--listen", &address, "--ready"]);
    assert!(
        ready.code == 1 && ready.stderr.contains("--admin-listen"),
        "{}",
        ready.stderr
    );
}

#[test]
fn nobody_somebody_else_and_silence_are_unhealthy_within_a_bound() {
    let begun = Instant::now();
    for (arguments, why) in [
        (&["--listen", "127.0.0.1:1"][..], "127.0.0.1:1"),
        (&["--admin-listen", "127.0.0.1:1"], "127.0.0.1:1"),
        (&["--listen", "127.0.0.1:0"], "port 0"),
        (&["--harness-url", "ws://127.0.0.1:1"], "--admin-listen"),
        (&["--config", "/no/such/file"], "/no/such/file"),
    ] {
        let unhealthy = check(arguments);
        assert_eq!(unhealthy.code, 1, "{arguments:?}: {}", unhealthy.stderr);
        assert!(
            unhealthy.stderr.contains(why),
            "{arguments:?}: {}",
            unhealthy.stderr
        );
        assert_eq!(unhealthy.stderr.lines().count(), 1, "{}", unhealthy.stderr);
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let unhealthy = check(&["--listen", &silent.local_addr().unwrap().to_string()]);
    assert!(
        unhealthy.code == 1 && unhealthy.stderr.contains("did not answer within"),
        "{}",
        unhealthy.stderr
    );
    assert!(
        begun.elapsed() < Duration::from_secs(3) + SOON,
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn the_admin_port_tells_living_from_being_ready() {
    let mut watched = start_watched(&["--drain-timeout", "30s"]);
    let admin = watched.admin.to_string();
    let ask = |further: &[&str]| check(&[&["--admin-listen", &*admin], further].concat());
    assert_eq!(ask(&[]).code, 0);
    assert_eq!(ask(&["--ready"]).code, 0);
    let mut client = watched.server.connect().await;
    client
        .send_call("bash", json!({"command": "sleep 7463"}))
        .await;
    expect_page(
        watched.admin,
        "/metrics",
        200,
        "bma_executor_running_calls 1\n",
    );
    watched.server.send_signal(Signal::TERM);
    expect_page(watched.admin, "/readyz", 503, "stops");
    assert_eq!(ask(&[]).code, 0);
    let ready = ask(&["--ready"]);
    assert!(
        ready.code == 1 && ready.stderr.contains("stops"),
        "{}",
        ready.stderr
    );
    watched.server.send_signal(Signal::TERM);
    watched.server.expect_end(SOON);
}
