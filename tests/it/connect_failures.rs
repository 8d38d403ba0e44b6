//! Harnesses that cannot be reached: named in the log, tried again after ever longer pauses, never given up (case WS-12).

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::connect::start_dialler;

/// What four seconds may hold of pauses below 0.5, 1, 2, 4 s, with much luck.
const MOST: usize = 24;

/// Lets a dialler run for four seconds, and returns how often it says that it cannot reach its harness, and its log.
async fn failures(url: &str, further: &[&str]) -> (usize, String) {
    let dialler = start_dialler(url, further);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (code, stdout, log) = tokio::task::spawn_blocking(|| dialler.stop())
        .await
        .unwrap();
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{log}");
    (log.matches("the harness cannot be reached").count(), log)
}

fn check_tried_again(failures: usize, log: &str, reason: &str) {
    assert!((2..=MOST).contains(&failures), "{failures} failures: {log}");
    assert!(log.contains(reason), "{reason:?} is not said: {log}");
}

#[tokio::test]
async fn a_name_that_has_no_address_is_asked_for_again() {
    // No server has to be asked: a part of a name has at most 63 characters.
    let url = format!("wss://{}.invalid/", "a".repeat(64));
    let (failures, log) = failures(&url, &[]).await;
    check_tried_again(failures, &log, "the name cannot be resolved");
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_dialled_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Bound and not listening would be better; it is closed at once instead, and nobody else asks for this address.
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (failures, log) = failures(&format!("ws://{address}"), &[]).await;
    check_tried_again(failures, &log, "nobody answers there");
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_in_plain() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let (failures, log) = failures(&url, &[]).await;
    check_tried_again(failures, &log, "TLS could not be established");
    server.abort();
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let certified = rcgen::generate_simple_self_signed(["elsewhere.invalid".to_owned()]).unwrap();
    let scratch = tempfile::TempDir::new().unwrap();
    let authority = scratch.path().join("ca.pem");
    std::fs::write(&authority, certified.cert.pem()).unwrap();
    let key = certified.signing_key.serialize_der();
    let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::try_from(key).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://localhost:{}", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            assert!(
                acceptor.accept(stream).await.is_err(),
                "a foreign certificate was taken"
            );
        }
    });
    let (failures, log) = failures(&url, &["--ca-file", authority.to_str().unwrap()]).await;
    check_tried_again(failures, &log, "TLS could not be established");
    assert!(!server.is_finished(), "a foreign certificate was taken");
    server.abort();
}
