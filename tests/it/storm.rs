//! A hundred executors that lose their harness at one moment do not come back at one moment (case WS-12).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bma_executor::dispatch::{BuiltIn, Facts, Harnesses, Hub, Rooms, ToolPolicy, offer};
use bma_executor::journal::{Journal, Recovered};
use bma_executor::limits::Limits;
use bma_executor::net::{IoThread, Target};
use bma_executor::process::Processes;
use bma_executor::workspace::Workspace;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use crate::support::dialling::select;
use crate::support::{SOON, slow_tests_run};

const EXECUTORS: usize = 100;

const WINDOW: Duration = Duration::from_millis(100);

/// A harness that notes when it is dialled.
struct Harness {
    /// Whether it takes connections or drops them at once.
    up: Arc<AtomicBool>,
    dials: Arc<Mutex<Vec<Instant>>>,
    established: Arc<AtomicUsize>,
    cut: watch::Sender<()>,
    address: std::net::SocketAddr,
}

fn start_harness() -> Harness {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let harness = Harness {
        up: Arc::new(AtomicBool::new(true)),
        dials: Arc::default(),
        established: Arc::default(),
        cut: watch::Sender::new(()),
        address: listener.local_addr().unwrap(),
    };
    let (up, dials) = (Arc::clone(&harness.up), Arc::clone(&harness.dials));
    let (established, cut) = (Arc::clone(&harness.established), harness.cut.clone());
    let runtime = tokio::runtime::Handle::current();
    // A thread that does nothing else, so that the times are those of the dials.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            dials.lock().unwrap().push(Instant::now());
            if up.load(Ordering::Relaxed) {
                stream.set_nonblocking(true).unwrap();
                runtime.spawn(serve(stream, Arc::clone(&established), cut.subscribe()));
            }
        }
    });
    harness
}

async fn serve(
    stream: std::net::TcpStream,
    established: Arc<AtomicUsize>,
    mut cut: watch::Receiver<()>,
) {
    let stream = TcpStream::from_std(stream).unwrap();
    let Ok(mut socket) = accept_hdr_async(stream, select).await else {
        return;
    };
    let welcome =
        json!({"method": "harness.welcome", "params": {"protocol_version": "bma.executor.v1.1"}});
    if socket
        .send(Message::text(welcome.to_string()))
        .await
        .is_err()
        || socket.next().await.is_none()
    {
        return;
    }
    established.fetch_add(1, Ordering::Relaxed);
    let read = async { while let Some(Ok(_)) = socket.next().await {} };
    tokio::select! {
        _ = cut.changed() => {}
        () = read => {}
    }
}

impl Harness {
    async fn expect_all(&self) {
        let until = Instant::now() + 4 * SOON;
        while self.established.load(Ordering::Relaxed) < EXECUTORS {
            let there = self.established.load(Ordering::Relaxed);
            assert!(Instant::now() < until, "only {there} executors are there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Cuts every connection; the dials are counted from here.
    fn cut(&self) {
        self.established.store(0, Ordering::Relaxed);
        self.take_dials();
        self.cut.send_replace(());
    }

    fn take_dials(&self) -> Vec<Instant> {
        std::mem::take(&mut self.dials.lock().unwrap())
    }
}

/// A running executor, as far as dialling goes.
struct Dialler {
    stop: CancellationToken,
    _thread: IoThread,
}

impl Drop for Dialler {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn start_diallers(scratch: &TempDir, harness: &Harness) -> Vec<Dialler> {
    let limits = Arc::new(Limits::default());
    let facts = Facts {
        user: "tester".to_owned(),
        workspace: Workspace::open(scratch.path(), &limits).unwrap(),
        processes: Processes::new(&limits, Vec::new()),
        journal: Journal::memory("nothing is called here"),
    };
    let offer = offer(&ToolPolicy::default(), &facts, &limits);
    let start = |_| {
        let rooms = Rooms {
            workspace: facts.workspace.clone(),
            processes: facts.processes.clone(),
            toolbox: Arc::new(BuiltIn),
            environment_id: None,
        };
        let (journal, recovered) = (facts.journal.clone(), Recovered::default());
        let hub = Hub::new(
            &limits,
            rooms,
            Harnesses::One,
            offer.clone(),
            journal,
            recovered,
        )
        .unwrap();
        let target = Target::new(&format!("ws://{}", harness.address), None, None).unwrap();
        let stop = CancellationToken::new();
        let thread = IoThread::dial(target, hub, Arc::clone(&limits), stop.clone(), || {}).unwrap();
        Dialler {
            stop,
            _thread: thread,
        }
    };
    (0..EXECUTORS).map(start).collect()
}

/// The dials in the busiest window, and in a window on average, from the first dial to the last.
fn busiest_and_mean(dials: &[Instant]) -> (usize, f64) {
    let within = |from: &Instant| {
        dials
            .iter()
            .filter(|at| *at >= from && **at < *from + WINDOW)
            .count()
    };
    let busiest = dials.iter().map(within).max().unwrap_or(0);
    let span = dials
        .iter()
        .max()
        .unwrap()
        .duration_since(*dials.iter().min().unwrap())
        .max(WINDOW);
    let windows = span.as_secs_f64() / WINDOW.as_secs_f64();
    (
        busiest,
        f64::from(u32::try_from(dials.len()).unwrap()) / windows,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_executors_come_back_spread_out_and_do_not_hammer_a_harness_that_is_down() {
    if !slow_tests_run() {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let harness = start_harness();
    let diallers = start_diallers(&scratch, &harness);
    harness.expect_all().await;

    // The harness is back at once: this is the fullest moment there is.
    harness.cut();
    harness.expect_all().await;
    let (busiest, mean) = busiest_and_mean(&harness.take_dials());
    println!("back at once: busiest 100 ms {busiest} dials, mean {mean:.1}");
    #[expect(clippy::cast_precision_loss, reason = "at most a hundred")]
    let spread = (busiest as f64) < 3.0 * mean;
    assert!(
        spread,
        "{busiest} dials within 100 ms, {mean:.1} on average"
    );

    // It is down for a while: every dial is dropped.
    harness.up.store(false, Ordering::Relaxed);
    harness.cut();
    let outage = Duration::from_secs(6);
    tokio::time::sleep(outage).await;
    let during = harness.take_dials();
    harness.up.store(true, Ordering::Relaxed);
    harness.expect_all().await;
    let after = harness.take_dials();
    let (busiest_during, mean_during) = busiest_and_mean(&during);
    let (busiest_after, mean_after) = busiest_and_mean(&after);
    println!(
        "down for {outage:?}: {} dials, busiest 100 ms {busiest_during}, mean {mean_during:.1}; \
         then busiest {busiest_after}, mean {mean_after:.1}",
        during.len()
    );
    // Full jitter below 0.5, 1, 2, 4, 8 s: some six dials in that time, and never more at once than above.
    assert!(during.len() <= 12 * EXECUTORS, "{} dials", during.len());
    assert!(
        busiest_during.max(busiest_after) <= EXECUTORS * 3 / 5,
        "{busiest_during}, {busiest_after}"
    );
    drop(diallers);
}
