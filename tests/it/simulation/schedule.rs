//! One schedule: random steps of harness, line and executor, then an end.

use std::sync::Arc;
use std::time::Duration;

use bma_executor::dispatch::Harnesses;
use bma_executor::limits::Limits;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
use tokio_util::sync::CancellationToken;

use super::daemon::{Daemon, Ground, Ledger, Work};
use super::harness::{Fault, Harness};
use super::line::{HarnessEnd, Line};
use super::model::{Call, Connection, Model, Session};
use super::random::Random;

/// What is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Nothing.
    Nothing,
    /// The executor remembers no finished call.
    Memory,
    /// The executor's journal is emptied between its lives.
    Journal,
    /// The harness believes that it acknowledges, and does not.
    Acks,
}

/// The schedule of one seed while it runs.
pub struct Schedule<'a> {
    ground: &'a Ground,
    state: TempDir,
    pub(super) random: Random,
    pub(super) broken: Broken,
    pub(super) daemon: Daemon,
    pub(super) harness: Harness,
    /// Lines that the harness has given up, whose bytes are still under way.
    pub(super) forgotten: Vec<Line>,
}

/// What a schedule came to.
pub struct Ended {
    /// What broke, if anything.
    pub fault: Option<Fault>,
    /// What happened.
    pub trace: Vec<String>,
    /// Calls that were run.
    pub executed: usize,
    /// Connections that were made.
    pub connections: usize,
    /// Lives of the executor.
    pub lives: usize,
}

pub(super) const SESSIONS: usize = 2;

impl<'a> Schedule<'a> {
    /// Draws the setting of a seed.
    pub fn new(ground: &'a Ground, seed: u64, broken: Broken, tracing: bool) -> Self {
        let mut random = Random::new(seed);
        let harnesses = if random.chance(50) {
            Harnesses::Many
        } else {
            Harnesses::One
        };
        let few = random.chance(30);
        let limits = Arc::new(Limits {
            heartbeat: HEARTBEAT,
            max_concurrent_calls: if few { 3 } else { 256 },
            finished_ttl: Duration::from_secs(if broken == Broken::Memory { 0 } else { 600 }),
            // Small, so that frames are torn and writers blocked by a few kilobytes.
            socket_buffer_bytes: 1_024,
            fragment_bytes: 2_048,
            ..Limits::default()
        });
        let ledger = Ledger::default();
        let state = TempDir::new_in(ground.scratch.path()).unwrap();
        let daemon = Daemon::start(ground, &ledger, state.path(), &limits, harnesses, 0);
        let model = Model {
            harnesses,
            v1: random.chance(20),
            sessions: (0..SESSIONS)
                .map(|at| Session {
                    id: format!("s{at}"),
                    token: None,
                    closed: false,
                })
                .collect(),
            calls: Vec::new(),
            connections: Vec::new(),
            killed: Vec::new(),
            stops: Vec::new(),
            ledger,
        };
        let mut harness = Harness::new(model, tracing);
        let v1 = harness.model.v1;
        harness.note(|| format!("{harnesses:?}, v1: {v1}, few slots: {few}"));
        Self {
            ground,
            state,
            random,
            broken,
            daemon,
            harness,
            forgotten: Vec::new(),
        }
    }

    /// Runs the schedule to its end.
    pub async fn run(mut self, steps: usize) -> Ended {
        let fault = async {
            self.connect_random();
            for _ in 0..steps {
                self.step().await;
                self.harness.pump()?;
            }
            self.finish().await
        }
        .await;
        let model = &self.harness.model;
        let executed = model.ledger.lock().unwrap().len();
        Ended {
            fault: fault.err(),
            executed,
            connections: model.connections.len(),
            lives: model.killed.len() + 1,
            trace: self.harness.trace,
        }
    }

    /// Stops the executor in order, and starts it again over what it left.
    pub(super) async fn stop(&mut self) {
        self.harness.note(|| "the executor is stopped".to_owned());
        self.harness.model.stops.push(Instant::now());
        let hurry = CancellationToken::new();
        if self.random.chance(30) {
            hurry.cancel();
        }
        self.daemon.hub.shut_down("SIGTERM", &hurry).await;
        sleep(Duration::from_millis(500)).await;
        self.restart();
    }

    /// Ends the executor as SIGKILL does, and starts it again over what it left.
    pub(super) fn restart(&mut self) {
        self.harness
            .note(|| "the executor is killed and started again".to_owned());
        self.daemon.kill();
        let model = &mut self.harness.model;
        model.killed.push(Instant::now());
        for connection in &mut model.connections {
            connection.task = None;
            connection.holds.clear();
        }
        if self.broken == Broken::Journal {
            self.state = TempDir::new_in(self.ground.scratch.path()).unwrap();
        }
        self.daemon = Daemon::start(
            self.ground,
            &model.ledger,
            self.state.path(),
            &self.daemon.limits,
            model.harnesses,
            model.killed.len(),
        );
    }

    /// Makes another connection over a line that holds little or much.
    pub(super) fn connect_random(&mut self) {
        let capacity = self.random.pick(&[600, 4_000, 64_000]).unwrap();
        self.connect(capacity);
    }

    pub(super) fn connect(&mut self, capacity: usize) -> usize {
        let line = Line::new(capacity);
        let connections = &mut self.harness.model.connections;
        let dials = self.harness.model.harnesses == Harnesses::One;
        let before = connections
            .last_mut()
            .filter(|_| dials)
            .and_then(|last| last.task.take());
        let served = self.daemon.serve(&line, before);
        let role = if dials { Role::Server } else { Role::Client };
        let socket = WebSocket::from_raw_socket(HarnessEnd(line.clone()), role, None);
        connections.push(Connection {
            socket: Some(socket),
            line,
            task: Some(served.task),
            attached: served.attached,
            takes: Vec::new(),
            holds: Vec::new(),
            answers: std::collections::BTreeMap::new(),
            progress: std::collections::BTreeMap::new(),
        });
        let made = connections.len() - 1;
        self.harness.note(|| format!("{made} connects"));
        if !self.harness.model.v1 {
            self.harness.send(
                made,
                "harness.welcome",
                &json!({"protocol_version": "bma.executor.v1.1"}),
            );
        }
        made
    }

    /// Sends a call that was never sent before.
    pub(super) fn call(&mut self, connection: usize, session: usize) -> usize {
        let random = &mut self.random;
        let model = &mut self.harness.model;
        let id = format!("c{}", model.calls.len());
        let refused = random
            .pick(&["invalid_input", "permission_denied"])
            .filter(|_| random.chance(5));
        let work = Work {
            key: format!("s{session}/{id}"),
            ms: random.pick(&[0, 0, 2, 20, 300, 3_000]).unwrap(),
            bytes: if random.chance(2) {
                70_000
            } else {
                random.pick(&[0, 10, 500, 3_000]).unwrap()
            },
            stubborn: random.chance(10),
            panics: random.chance(3),
        };
        let deadline = [1, 200, 100_000][random.below(3)];
        model.calls.push(Call {
            session,
            id,
            work,
            deadline: random.chance(15).then_some(deadline),
            refused,
            sent: Vec::new(),
            others: Vec::new(),
            cancelled: false,
            answer: None,
            ack: None,
        });
        let call = model.calls.len() - 1;
        if random.chance(4) {
            // It overtakes its call.
            self.cancel(connection, call);
        }
        self.harness.send_call(connection, call);
        call
    }

    pub(super) fn cancel(&mut self, connection: usize, call: usize) {
        let it = &mut self.harness.model.calls[call];
        it.cancelled = true;
        let (session, id) = (it.session, it.id.clone());
        let session = self.harness.model.sessions[session].id.clone();
        let params = json!({"session_id": session, "tool_call_id": id});
        self.harness.send(connection, "tool.cancel", &params);
    }

    /// Acknowledges the waiting result at `at`.
    pub(super) fn ack(&mut self, at: usize) {
        let (call, connection) = self.harness.unacked.remove(at);
        if self.harness.model.v1 || self.harness.model.connections[connection].socket.is_none() {
            return;
        }
        if self.broken == Broken::Acks {
            let offset = self.harness.model.connections[connection].line.sent();
            self.harness.model.calls[call].ack = Some(super::model::Sent { connection, offset });
        } else {
            self.harness.send_ack(call, connection);
        }
    }

    /// Lets time pass and takes what arrives meanwhile.
    pub(super) async fn wait(&mut self, time: Duration) -> Result<(), Fault> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            sleep(Duration::from_millis(100).min(until - Instant::now())).await;
            self.harness.pump()?;
        }
        Ok(())
    }
}

/// Ends the key of what is sent under the id of another call.
pub(super) const OTHER: &str = "-other";

/// Ping interval of the schedules, so short that a schedule sees many.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
