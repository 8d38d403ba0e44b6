//! Lines that have gone dead without a word: noticed within two heartbeats, and nothing is lost (case WS-11).

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::client::open;
use crate::support::dialling::{start_dialling, start_harness};
use crate::support::executor::{KEY, Options};
use crate::support::proxy::start_proxy;
use crate::support::{Client, Executor, SOON, start_executor_with};

const HEARTBEAT: Duration = Duration::from_millis(500);

/// Two heartbeats, and what a loaded machine may take on top.
const NOTICED: Duration = Duration::from_secs(6);

fn start_with_heartbeat() -> Executor {
    start_executor_with(Options {
        configure: Box::new(|config| config.limits.heartbeat = HEARTBEAT),
        ..Options::default()
    })
}

/// Asks once for the session; returns whether it was free.
async fn try_to_take_up(client: &mut Client) -> bool {
    client
        .send("session.open", json!({"session_id": "s-1"}))
        .await;
    let answer = |frame: &Value| {
        frame["method"] == "session.opened" || frame["params"]["code"] == "session_in_use"
    };
    let answer = client
        .expect_within("an answer to the open", SOON, answer)
        .await;
    answer["method"] == "session.opened"
}

/// Asks for the session until the executor has noticed that its holder is gone.
pub async fn take_up(client: &mut Client) {
    let until = Instant::now() + NOTICED;
    loop {
        if try_to_take_up(client).await {
            return;
        }
        assert!(
            Instant::now() < until,
            "the dead line has not been noticed within {NOTICED:?}"
        );
        tokio::time::sleep(HEARTBEAT / 10).await;
    }
}

async fn check_no_further_result(client: &mut Client) {
    let rest = client.drain(Duration::from_millis(300)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "{rest:#?}"
    );
}

#[tokio::test]
async fn a_listening_executor_gives_a_session_free_once_its_line_has_gone_dead() {
    for (forwards, backwards) in [(true, true), (true, false), (false, true)] {
        let executor = start_with_heartbeat();
        let proxy = start_proxy(executor.address).await;
        let mut first = Client::connect(proxy.address, Some(KEY)).await;
        first.send_welcome().await;
        let command = json!({"command": "sleep 0.3; echo X >>f; echo X"});
        let running = first.send_call("bash", command).await;
        first.expect("session.opened").await;
        proxy.hold(forwards, backwards);
        let dark = Instant::now();
        let mut second = executor.connect().await;
        take_up(&mut second).await;
        let noticed = dark.elapsed();
        assert!(noticed >= HEARTBEAT, "given up after {noticed:?} already");
        println!("forwards {forwards}, backwards {backwards}: noticed after {noticed:?}");
        assert_eq!(
            second.expect_result(&running).await.data(),
            "X\nexit_code: 0"
        );
        assert_eq!(executor.read_file("f"), b"X\n", "it ran once");
        check_no_further_result(&mut second).await;
    }
}

#[tokio::test]
async fn a_dialling_executor_dials_again_once_its_line_has_gone_dead() {
    for (forwards, backwards) in [(true, true), (true, false), (false, true)] {
        let harness = start_harness().await;
        let proxy = start_proxy(harness.address()).await;
        let executor = start_dialling(proxy.address, |limits| limits.heartbeat = HEARTBEAT);
        let mut first = harness.expect_executor().await;
        first.send_welcome().await;
        let command = json!({"command": "sleep 0.3; echo X >>f; echo X"});
        let running = first.send_call("bash", command).await;
        first.expect("session.opened").await;
        proxy.hold(forwards, backwards);
        let dark = Instant::now();
        while proxy.accepted() < 2 {
            assert!(
                dark.elapsed() < NOTICED,
                "it has not dialled again within {NOTICED:?}"
            );
            tokio::time::sleep(HEARTBEAT / 10).await;
        }
        assert!(
            dark.elapsed() >= HEARTBEAT,
            "given up after {:?} already",
            dark.elapsed()
        );
        println!(
            "forwards {forwards}, backwards {backwards}: dialled again after {:?}",
            dark.elapsed()
        );
        // The new path; what was under way on the old one arrives late.
        proxy.hold(false, false);
        let mut second = harness.expect_executor().await;
        second.send_welcome().await;
        assert_eq!(
            second.expect_result(&running).await.data(),
            "X\nexit_code: 0"
        );
        assert_eq!(executor.read_file("f"), b"X\n", "it ran once");
        check_no_further_result(&mut second).await;
        executor.stop().await;
    }
}

#[tokio::test]
async fn a_harness_that_only_answers_pings_is_alive() {
    // Long, since this machine may be too busy for a while to answer.
    let heartbeat = 3 * HEARTBEAT;
    let executor = start_executor_with(Options {
        configure: Box::new(move |config| config.limits.heartbeat = heartbeat),
        ..Options::default()
    });
    let mut client = executor.connect().await;
    client.check_alive().await;
    client.drain(3 * heartbeat).await;
    client.check_alive().await;
    let harness = start_harness().await;
    let dialling = start_dialling(harness.address(), move |limits| {
        limits.heartbeat = heartbeat;
    });
    let mut client = harness.expect_executor().await;
    client.send_welcome().await;
    client.drain(3 * heartbeat).await;
    client.check_alive().await;
    dialling.stop().await;
}

#[tokio::test]
async fn the_executor_pings_at_each_heartbeat_and_answers_pings() {
    let executor = start_with_heartbeat();
    let mut socket = open(executor.address, Some(KEY), &[]).await.unwrap();
    let begun = Instant::now();
    let mut pings = 0;
    while pings < 4 {
        let message = tokio::time::timeout(SOON, socket.next()).await;
        match message
            .expect("a ping comes")
            .expect("the stream goes on")
            .unwrap()
        {
            Message::Ping(_) => pings += 1,
            Message::Text(_) => {}
            other => panic!("{other:?} came"),
        }
    }
    let taken = begun.elapsed();
    assert!(taken >= HEARTBEAT * 19 / 5, "four pings within {taken:?}");
    drop(socket);
    executor.connect().await.ping().await;
}

#[tokio::test]
async fn a_writer_that_gets_nothing_away_for_two_heartbeats_gives_up_and_keeps_the_results() {
    let executor = start_with_heartbeat();
    executor.write_file("large", ("x".repeat(79) + "\n").repeat(75_000));
    let mut deaf = executor.connect().await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        // Together more than the socket's own buffers hold.
        let input = json!({"path": "large", "limit": 1_000_000});
        waiting.push(deaf.send_call("read", input).await);
    }
    let mut second = executor.connect().await;
    let until = Instant::now() + 8 * NOTICED;
    loop {
        // It gives signs of life, so that only the writer can notice.
        deaf.try_ping().await;
        if try_to_take_up(&mut second).await {
            break;
        }
        assert!(Instant::now() < until, "a writer is blocked for ever");
        tokio::time::sleep(HEARTBEAT / 5).await;
    }
    for _ in 0..3 {
        let (id, reply) = second.expect_any_result(3 * SOON).await;
        assert_eq!(reply.check_done().data().len(), 75_000 * 80, "{id}");
        waiting.retain(|waits| *waits != id);
    }
    assert_eq!(waiting, Vec::<String>::new());
    check_no_further_result(&mut second).await;
}

#[tokio::test]
async fn a_harness_that_takes_a_large_result_slowly_is_not_given_up() {
    // Much more than the kernel's own buffers take.
    const LARGE: usize = 24 << 20;
    const PAUSE: Duration = Duration::from_millis(10);
    let executor = start_with_heartbeat();
    let line = "a line of a file that takes long to send\n";
    let content = line.repeat(LARGE / line.len());
    std::fs::write(executor.workspace().join("f"), content).unwrap();
    let proxy = start_proxy(executor.address).await;
    proxy.slow(PAUSE);
    let mut client = Client::connect(proxy.address, Some(KEY)).await;
    let welcome = json!({"protocol_version": "bma.executor.v1.1", "max_message_bytes": 2 * LARGE});
    client.send("harness.welcome", welcome).await;
    let begun = Instant::now();
    let input = json!({"path": "f", "limit": 10_000_000});
    let id = client.send_call("read", input).await;
    let is_result = |frame: &Value| frame["method"] == "tool.result";
    let result = client
        .expect_within("the result on this connection", 6 * SOON, is_result)
        .await;
    assert_eq!(result["params"]["tool_call_id"], id);
    let took = begun.elapsed();
    assert!(took > 4 * HEARTBEAT, "it was not slow: {took:?}");
    assert_eq!(proxy.accepted(), 1);
}
