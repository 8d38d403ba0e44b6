//! A TCP proxy that can be stopped in either direction: bytes are held, nothing is closed, as on a line that has gone dead.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A running proxy. Dropped, it closes every connection.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    /// Holds what diallers send.
    forwards: watch::Sender<bool>,
    /// Holds what they are sent.
    backwards: watch::Sender<bool>,
    /// Pause after each piece that they are sent.
    pause: watch::Sender<Duration>,
    accepted: Arc<Mutex<usize>>,
    _task: JoinSet<()>,
}

/// Starts a proxy before an address.
pub async fn start_proxy(target: SocketAddr) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (forwards, backwards) = (watch::Sender::new(false), watch::Sender::new(false));
    let accepted = Arc::new(Mutex::new(0));
    let pause = watch::Sender::new(Duration::ZERO);
    let (ways, count) = (
        (forwards.subscribe(), backwards.subscribe()),
        Arc::clone(&accepted),
    );
    let (at_once, slowly) = (watch::Sender::new(Duration::ZERO), pause.subscribe());
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut pumps = JoinSet::new();
        loop {
            let (dialler, _) = listener.accept().await.unwrap();
            *count.lock().unwrap() += 1;
            let server = TcpStream::connect(target).await.unwrap();
            dialler.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let (from_dialler, to_dialler) = dialler.into_split();
            let (from_server, to_server) = server.into_split();
            pumps.spawn(pump(
                from_dialler,
                to_server,
                ways.0.clone(),
                at_once.subscribe(),
            ));
            pumps.spawn(pump(
                from_server,
                to_dialler,
                ways.1.clone(),
                slowly.clone(),
            ));
        }
    });
    Proxy {
        address,
        forwards,
        backwards,
        pause,
        accepted,
        _task: task,
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
    pause: watch::Receiver<Duration>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // Also the end is held: a dead line closes nothing.
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if held.wait_for(|held| !held).await.is_err() || read == 0 {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        let pause = *pause.borrow();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

impl Proxy {
    /// Holds or lets go what diallers send and what they are sent.
    pub fn hold(&self, forwards: bool, backwards: bool) {
        self.forwards.send_replace(forwards);
        self.backwards.send_replace(backwards);
    }

    /// Pauses after each piece that diallers are sent.
    pub fn slow(&self, pause: Duration) {
        self.pause.send_replace(pause);
    }

    /// How many connections have been made.
    pub fn accepted(&self) -> usize {
        *self.accepted.lock().unwrap()
    }
}
