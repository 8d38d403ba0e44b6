//! The executor of the simulation: the real hub and the real session loop, with tools that only count.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bma_executor::dispatch::{
    Facts, Harnesses, Hub, Rooms, Run, ToolInput, ToolPolicy, Toolbox, offer,
};
use bma_executor::journal::Journal;
use bma_executor::limits::Limits;
use bma_executor::net::{End, Link, serve_connection, socket_config};
use bma_executor::process::Processes;
use bma_executor::tools::{Ctx, ToolOutput};
use bma_executor::wire::{CapabilitiesUpdate, ContentBlock, OutputStream};
use bma_executor::workspace::Workspace;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::line::{ExecutorEnd, Line};

/// What the tools did to each call, by its key, over all daemons of a schedule.
pub type Ledger = Arc<Mutex<BTreeMap<String, Execution>>>;

/// What the tools did to one call.
#[derive(Debug, Clone, Default)]
pub struct Execution {
    /// How often it was begun.
    pub starts: usize,
    /// The daemon that began it last.
    pub daemon: usize,
    /// When it ended.
    pub end: Option<Instant>,
}

/// What a call asks for. Its text is the command, so that the tool knows what it does and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Names the call in the ledger.
    pub key: String,
    /// How long it takes.
    pub ms: u64,
    /// The size of its result.
    pub bytes: usize,
    /// Whether it takes its time though it is to stop.
    pub stubborn: bool,
    /// Whether the tool fails.
    pub panics: bool,
}

impl Work {
    /// The command.
    pub fn command(&self) -> String {
        let Self {
            key,
            ms,
            bytes,
            stubborn,
            panics,
        } = self;
        format!("{key} {ms} {bytes} {stubborn} {panics}")
    }

    fn parse(command: &str) -> Self {
        let words: Vec<&str> = command.split(' ').collect();
        Self {
            key: words[0].to_owned(),
            ms: words[1].parse().unwrap(),
            bytes: words[2].parse().unwrap(),
            stubborn: words[3] == "true",
            panics: words[4] == "true",
        }
    }

    /// The whole text that a finished run returns.
    pub fn text(&self) -> String {
        format!("{} did {}", self.key, "x".repeat(self.bytes))
    }
}

/// Tools that count.
#[derive(Debug)]
struct Counting {
    ledger: Ledger,
    daemon: usize,
    alive: Arc<AtomicBool>,
}

impl Toolbox for Counting {
    fn run(&self, ctx: Ctx, input: ToolInput) -> Run {
        let ToolInput::Bash(input) = input else {
            unreachable!("only `bash` is offered")
        };
        let work = Work::parse(&input.command);
        let (ledger, alive) = (Arc::clone(&self.ledger), Arc::clone(&self.alive));
        if !alive.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let mut entries = ledger.lock().unwrap();
        let entry = entries.entry(work.key.clone()).or_default();
        entry.starts += 1;
        entry.daemon = self.daemon;
        drop(entries);
        Box::pin(async move {
            for part in 0..2 {
                ctx.progress
                    .output(OutputStream::Stdout, format!("part {part}"), 0);
                let stop = async {
                    ctx.stop.stopped().await;
                    if work.stubborn {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = stop => break,
                    () = sleep(Duration::from_millis(work.ms / 2)) => {}
                }
            }
            if !alive.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            ledger.lock().unwrap().get_mut(&work.key).unwrap().end = Some(Instant::now());
            if work.panics {
                // Without the hook, whose message would only litter the log.
                std::panic::resume_unwind(Box::new("a fault in a tool"));
            }
            ToolOutput {
                content: vec![ContentBlock::text(work.text())],
                is_error: false,
                details: None,
                stopped: ctx.stop.cause(),
            }
        })
    }
}

/// What all schedules share: opening these takes longer than a whole schedule.
#[derive(Debug)]
pub struct Ground {
    workspace: Workspace,
    processes: Processes,
    offer: CapabilitiesUpdate,
    /// Where each schedule has a state directory of its own; in memory where that can be had.
    pub scratch: TempDir,
}

/// Prepares what all schedules share.
pub fn start_ground() -> Ground {
    let scratch = TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap();
    let limits = Arc::new(Limits::default());
    let workspace = Workspace::open(scratch.path(), &limits).unwrap();
    let processes = Processes::new(&limits, Vec::new());
    let facts = Facts {
        user: "tester".to_owned(),
        workspace: workspace.clone(),
        processes: processes.clone(),
        journal: Journal::memory("it is not advertised here"),
    };
    let mut offer = offer(&ToolPolicy::default(), &facts, &limits);
    // Each hello carries the schemas; one is enough here.
    offer.tools.retain(|tool| tool.name == "bash");
    Ground {
        workspace,
        processes,
        offer,
        scratch,
    }
}

/// One life of the executor.
#[derive(Debug)]
pub struct Daemon {
    /// Its sessions and calls.
    pub hub: Hub,
    /// Its bounds.
    pub limits: Arc<Limits>,
    /// What outlives it.
    pub journal: Journal,
    harnesses: Harnesses,
    alive: Arc<AtomicBool>,
    lines: Vec<Line>,
}

/// The executor's side of one connection.
#[derive(Debug)]
pub struct Served {
    /// Ends with the connection.
    pub task: JoinHandle<End>,
    /// When the hub took it in.
    pub attached: Arc<OnceLock<Instant>>,
}

impl Daemon {
    /// Starts an executor.
    pub fn start(
        ground: &Ground,
        ledger: &Ledger,
        state: &Path,
        limits: &Arc<Limits>,
        harnesses: Harnesses,
        number: usize,
    ) -> Self {
        let alive = Arc::new(AtomicBool::new(true));
        let rooms = Rooms {
            workspace: ground.workspace.clone(),
            processes: ground.processes.clone(),
            toolbox: Arc::new(Counting {
                ledger: Arc::clone(ledger),
                daemon: number,
                alive: Arc::clone(&alive),
            }),
            environment_id: None,
        };
        let (journal, recovered) = Journal::open(state, ground.workspace.root(), limits);
        assert_eq!(journal.lost(), None, "there is nothing to start again over");
        let offer = ground.offer.clone();
        let hub = Hub::new(limits, rooms, harnesses, offer, journal.clone(), recovered).unwrap();
        Self {
            hub,
            journal,
            limits: Arc::clone(limits),
            harnesses,
            alive,
            lines: Vec::new(),
        }
    }

    /// Serves a line, where the executor dials, once `before` has ended: it has one connection at a time.
    pub fn serve(&mut self, line: &Line, before: Option<JoinHandle<End>>) -> Served {
        self.lines.push(line.clone());
        let (hub, limits, line) = (self.hub.clone(), Arc::clone(&self.limits), line.clone());
        let attached = Arc::new(OnceLock::new());
        let role = match self.harnesses {
            Harnesses::Many => Role::Server,
            Harnesses::One => Role::Client,
        };
        let mark = Arc::clone(&attached);
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                before.await.unwrap();
            }
            let config = socket_config(&limits, limits.max_inbound_bytes);
            let bytes = Link::new(ExecutorEnd::new(line));
            let socket = WebSocketStream::from_raw_socket(bytes, role, Some(config)).await;
            mark.set(Instant::now()).unwrap();
            serve_connection(socket, hub.attach(), &limits).await
        });
        Served { task, attached }
    }

    /// Ends it as SIGKILL does: what it has sent arrives, and nothing that it held does anything more.
    pub fn kill(&self) {
        // What its thread still had to write would be written sometime: by the clock of the machine, not of the schedule.
        self.journal.flush();
        self.journal.sever();
        self.alive.store(false, Ordering::Relaxed);
        self.lines.iter().for_each(Line::end_of_executor);
    }
}
