//! Executors in this process that dial a harness, and the harness that they find.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bma_executor::config::{Config, KeySource, Settings};
use bma_executor::daemon::{Daemon, Machine};
use bma_executor::dispatch::BuiltIn;
use bma_executor::limits::Limits;
use bma_executor::net::Target;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_util::sync::CancellationToken;

use super::SOON;
use super::client::{Client, accept_executor};

/// An executor that dials, until it is dropped.
pub struct Dialling {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
    scratch: TempDir,
}

/// Starts an executor that dials an address, with bounds of the test's choice.
pub fn start_dialling(address: SocketAddr, change: impl FnOnce(&mut Limits)) -> Dialling {
    let scratch = TempDir::new().unwrap();
    for directory in ["ws", "home"] {
        std::fs::create_dir(scratch.path().join(directory)).unwrap();
    }
    let settings = Settings {
        workspace: Some(scratch.path().join("ws")),
        ..Settings::default()
    };
    let mut config = Config::new(settings).unwrap();
    config.key = KeySource::Default;
    change(&mut config.limits);
    let environment = vec![
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("HOME".into(), scratch.path().join("home").into_os_string()),
    ];
    let machine = Machine::probe(&config, environment, "tester".to_owned()).unwrap();
    let target = Target::new(&format!("ws://{address}"), Some("a-key".to_owned()), None).unwrap();
    let daemon = Daemon::dial(machine, &config, target, Arc::new(BuiltIn), || {}).unwrap();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        let stop = async {
            stopped.cancelled().await;
            "the test is over"
        };
        daemon.run(stop, CancellationToken::new()).await.unwrap();
    });
    Dialling {
        stop,
        task: Some(task),
        scratch,
    }
}

impl Dialling {
    /// Reads a file of its workspace.
    pub fn read_file(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.scratch.path().join("ws").join(path)).unwrap()
    }

    /// Writes a file into its workspace.
    pub fn write_file(&self, path: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.scratch.path().join("ws").join(path), content).unwrap();
    }

    /// Stops it in order.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            tokio::time::timeout(Duration::from_secs(10), task)
                .await
                .expect("it stops")
                .unwrap();
        }
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A harness that waits for executors.
pub struct Harness {
    /// Where they come in.
    pub listener: TcpListener,
}

/// Starts a harness on a free port.
pub async fn start_harness() -> Harness {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Harness { listener }
}

impl Harness {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Waits for the next executor, past its hello.
    pub async fn expect_executor(&self) -> Client {
        let accepted = tokio::time::timeout(2 * SOON, self.listener.accept()).await;
        let (stream, _) = accepted.expect("an executor dials").unwrap();
        stream.set_nodelay(true).unwrap();
        accept_executor(stream, select).await.0.unwrap()
    }
}

/// Selects the newest protocol, as a harness does.
#[expect(clippy::unnecessary_wraps, reason = "the library's own callback type")]
pub fn select(_: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let newest = "bma.executor.v1.1".parse().unwrap();
    response
        .headers_mut()
        .insert("sec-websocket-protocol", newest);
    Ok(response)
}
