//! Plain HTTP on the WebSocket port gets one short answer, and nothing else changes.

use std::io::Write as _;
use std::net::TcpStream;

use crate::support::start_executor;
use crate::support::watched::exchange;

#[tokio::test]
async fn a_request_that_asks_for_no_upgrade_is_answered_with_426() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for request in [
        "GET / HTTP/1.1\r\nHost: it\r\n\r\n".to_owned(),
        "GET /metrics HTTP/1.0\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        format!(
            "POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 99999\r\n\r\n{}",
            "x".repeat(3_000)
        ),
        "GET / HTTP/1.1\r\nHost: it\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n".to_owned(),
    ] {
        let address = executor.address;
        let asked = request.clone();
        let answer = tokio::task::spawn_blocking(move || {
            // Closed for writing, as by a client that has said everything.
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(asked.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
            answer
        })
        .await
        .unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 426 "),
            "{request:?}: {answer:?}"
        );
        assert!(
            answer.contains("\r\nUpgrade: websocket\r\n") && answer.ends_with("upgrade\n"),
            "{answer:?}"
        );
        assert!(answer.len() < 400);
    }
    client.bash("true").await.check_done();
}

#[tokio::test]
async fn what_is_no_http_is_closed_without_an_answer() {
    let executor = start_executor();
    let address = executor.address;
    let answer =
        tokio::task::spawn_blocking(move || exchange(address, b"\x16\x03\x01 not http\r\n\r\n"));
    assert_eq!(answer.await.unwrap(), "");
    executor.connect().await.bash("true").await.check_done();
}
