//! An executor in this process, on a port of its own over a workspace of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use bma_executor::config::{Config, KeySource, Settings};
use bma_executor::daemon::{Daemon, Machine, Offers};
use bma_executor::dispatch::{BuiltIn, Toolbox};
use bma_executor::state::StateDir;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::processes::{expect_none, running_in};

/// The key that every in-process executor asks for.
pub const KEY: &str = "a-key-for-tests-only";

/// How an executor is started.
pub struct Options {
    /// Changes the configuration before it is used.
    pub configure: Box<dyn FnOnce(&mut Config) + Send>,
    /// Runs the tools.
    pub toolbox: Arc<dyn Toolbox>,
    /// Where the workspace `ws`, the home `home` and the state directory `state` are, made where missing; one of its
    /// own where this is none. An executor started where another one was goes on with what that one left.
    pub scratch: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            configure: Box::new(|_| {}),
            toolbox: Arc::new(BuiltIn),
            scratch: None,
        }
    }
}

/// A running executor. Dropped, it stops in order, and the test fails where a process of it is left.
pub struct Executor {
    /// Where it listens.
    pub address: SocketAddr,
    /// Changes what it offers.
    pub offers: Offers,
    workspace: PathBuf,
    stop: Option<oneshot::Sender<&'static str>>,
    thread: Option<JoinHandle<()>>,
    _scratch: Option<TempDir>,
}

/// Starts an executor with the default configuration.
pub fn start_executor() -> Executor {
    start_executor_with(Options::default())
}

/// Starts an executor over a directory where another one may have been; see [`Options::scratch`].
pub fn start_executor_in(scratch: &Path) -> Executor {
    start_executor_with(Options {
        scratch: Some(scratch.to_owned()),
        ..Options::default()
    })
}

/// Starts an executor.
pub fn start_executor_with(options: Options) -> Executor {
    let own = options.scratch.is_none().then(|| TempDir::new().unwrap());
    let scratch = match (&own, options.scratch) {
        (Some(own), _) => own.path().to_owned(),
        (None, given) => given.unwrap(),
    };
    let workspace = scratch.join("ws");
    std::fs::create_dir_all(&workspace).unwrap();
    let workspace = workspace.canonicalize().unwrap();
    // An empty home: the tester's own start-up files may print, hang or take a second.
    let home = scratch.join("home");
    std::fs::create_dir_all(&home).unwrap();
    let environment = vec![
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("HOME".into(), home.into_os_string()),
    ];
    let settings = Settings {
        workspace: Some(workspace.clone()),
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..Settings::default()
    };
    let state_dir = scratch.join("state");
    let mut config = Config::new(settings).unwrap();
    config.key = KeySource::Default;
    (options.configure)(&mut config);
    let (started, ready) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let mut machine = Machine::probe(&config, environment, "tester".to_owned()).unwrap();
            machine.remember(StateDir::open(&state_dir));
            let (daemon, address) =
                Daemon::listen(machine, &config, Some(KEY.to_owned()), options.toolbox).unwrap();
            started.send((address, daemon.offers())).unwrap();
            let stop = async { stopped.await.unwrap_or("the test is over") };
            daemon.run(stop, CancellationToken::new()).await.unwrap();
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
    });
    let (address, offers) = ready.recv().expect("the executor starts");
    Executor {
        address,
        offers,
        workspace,
        stop: Some(stop),
        thread: Some(thread),
        _scratch: own,
    }
}

impl Executor {
    /// Its root workspace.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Writes a file into the workspace, with its directories.
    pub fn write_file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.workspace.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Reads a file of the workspace.
    #[track_caller]
    pub fn read_file(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.workspace.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Connects as a v1.1 harness.
    pub async fn connect(&self) -> Client {
        let mut client = self.connect_v1().await;
        client.send_welcome().await;
        client
    }

    /// Connects without a welcome.
    pub async fn connect_v1(&self) -> Client {
        Client::connect(self.address, Some(KEY)).await
    }

    /// Begins the orderly stop, as a signal would.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _received = stop.send("SIGTERM");
        }
    }

    /// Waits until the daemon has stopped.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the executor stops without a panic");
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            return;
        }
        self.join();
        let workspace = self.workspace.clone();
        expect_none(
            "a process of the executor is",
            Duration::from_secs(3),
            || running_in(&workspace),
        );
    }
}
