//! Sessions and calls: who holds what, what runs, and exactly one answer for each call.
//!
//! This room knows neither socket nor spelling. A connection hands it texts ([`Connection::receive`], which never
//! waits) and takes what is to be written from its [`Outbox`]. Sessions, running calls and results belong to the
//! [`Hub`], not to a connection: a lost socket cancels nothing.
//!
//! One call, file by file: `receive` routes the message, `admit` decides without waiting, `run` runs the tool
//! under its deadline, `answer` shapes what it came to, `deliver` keeps the result and queues it.

mod admit;
mod answer;
mod call_progress;
mod capabilities;
mod close;
mod deliver;
mod first_step;
mod fit;
mod hold;
mod kept;
mod observe;
mod outbox;
mod oversize;
mod receive;
mod registry;
mod restore;
mod run;
mod session;
mod shutdown;
mod toolbox;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

pub use capabilities::{Facts, ToolPolicy, offer};
pub use observe::Amounts;
pub use outbox::{CloseFrame, Outbox, Outgoing, Receipt, Shortcut};
pub use toolbox::{BuiltIn, Pace, Run, Tool, ToolInput, Toolbox};

use crate::health::Health;
use crate::journal::{Journal, Recovered};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::process::Processes;
use crate::wire::{AdvertisedLimits, CapabilitiesUpdate, ExecutorInfo, Hello, SessionId};
use crate::workspace::Workspace;
use deliver::Ages;
use kept::Accounts;
use registry::EarlyCancels;
use session::Sessions;

/// All sessions and calls of one daemon. Cloning is cheap; every clone is the same hub.
#[derive(Debug, Clone)]
pub struct Hub(Arc<Inner>);

/// What a hub runs calls with.
#[derive(Debug)]
pub struct Rooms {
    /// The root workspace.
    pub workspace: Workspace,
    /// The process room.
    pub processes: Processes,
    /// Runs the tools.
    pub toolbox: Arc<dyn Toolbox>,
    /// The name of this environment, for the hello.
    pub environment_id: Option<String>,
}

/// How many harnesses there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harnesses {
    /// Any number dial; each holds the sessions that it opened.
    Many,
    /// One is dialled; its next connection has all sessions.
    One,
}

#[derive(Debug)]
struct Inner {
    limits: Arc<Limits>,
    rooms: Rooms,
    harnesses: Harnesses,
    journal: Journal,
    instance_id: String,
    state: Mutex<State>,
    /// One permit for each admitted call until its answer is queued or kept.
    slots: Arc<Semaphore>,
    /// Every call, so that shutdown can wait for them.
    calls: TaskTracker,
    /// Where calls run. Connections have a thread of their own, so that no amount of work keeps a ping waiting.
    workers: Handle,
    accounts: Accounts,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

#[derive(Debug)]
struct State {
    peers: BTreeMap<PeerId, Arc<Peer>>,
    next_peer: PeerId,
    sessions: Sessions,
    ages: Ages,
    offer: Arc<CapabilitiesUpdate>,
    early_cancels: EarlyCancels,
    stopping: bool,
}

/// Numbers the connections of one daemon.
type PeerId = u64;

/// One connection, as the dispatcher sees it.
#[derive(Debug)]
struct Peer {
    outbox: Arc<Outbox>,
    terms: Mutex<Terms>,
    heartbeat: watch::Sender<Duration>,
    heard: Heard,
    /// What was written before then has reached the peer.
    reached: Mutex<Option<Instant>>,
}

/// Whether a valid message has come from a peer. Outlives its connection.
#[derive(Debug, Clone, Default)]
pub struct Heard(Arc<AtomicBool>);

impl Heard {
    /// Returns whether one has.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a connection agreed on; until its welcome comes it is served as v1.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// Whether the harness acknowledges results (v1.1).
    acks: bool,
    max_message_bytes: usize,
}

impl Peer {
    fn reached(&self) -> Option<Instant> {
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn terms(&self) -> Terms {
        *self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A harness connection. Dropping it leaves its sessions without a holder; their calls go on.
#[derive(Debug)]
pub struct Connection {
    hub: Hub,
    id: PeerId,
    peer: Arc<Peer>,
}

impl Connection {
    /// Returns what is to be written to this connection.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.peer.outbox
    }

    /// Returns the ping interval agreed on, and its changes.
    pub fn heartbeat(&self) -> watch::Receiver<Duration> {
        self.peer.heartbeat.subscribe()
    }

    /// Returns the counters of the daemon.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.hub.metrics()
    }

    /// Returns whether a valid message has come, as it changes.
    pub fn heard(&self) -> Heard {
        self.peer.heard.clone()
    }

    /// Notes that the peer has answered a ping that was sent at a time: whatever was written before has reached it.
    pub fn note_reached(&self, pinged: Instant) {
        let mut reached = self
            .peer
            .reached
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *reached = (*reached).max(Some(pinged.min(Instant::now())));
    }

    /// Gives up this connection's sessions. To be called before the peer can know that the connection ends, so that
    /// its next one finds them free.
    pub fn release(&self) {
        let mut state = self.hub.state();
        if !state.peers.contains_key(&self.id) {
            return;
        }
        for id in state.sessions.ids() {
            let Some(session) = state.sessions.get_mut(&id) else {
                continue;
            };
            if session.holder == Some(self.id) {
                session.released = Some(Instant::now());
                session.last_max_message_bytes = Some(self.peer.terms().max_message_bytes);
                let heartbeat = self.hub.0.limits.heartbeat;
                self.hub.settle_written(&mut state, &id, heartbeat, true);
                if let Some(session) = state.sessions.get_mut(&id) {
                    session.holder = None;
                }
            }
        }
        state.peers.remove(&self.id);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.release();
    }
}

impl Hub {
    /// Makes a hub over a workspace whose calls run on the current runtime. `offer` is what it advertises until
    /// [`Hub::reoffer`]; it goes on with the sessions that were `recovered` from the `journal`.
    ///
    /// # Errors
    /// The kernel gives no random bytes for the instance id.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(
        limits: &Arc<Limits>,
        rooms: Rooms,
        harnesses: Harnesses,
        offer: CapabilitiesUpdate,
        journal: Journal,
        recovered: Recovered,
    ) -> Result<Self, getrandom::Error> {
        let hub = Self(Arc::new(Inner {
            limits: Arc::clone(limits),
            rooms,
            harnesses,
            journal,
            instance_id: crate::secret::token()?,
            state: Mutex::new(State {
                peers: BTreeMap::new(),
                next_peer: 0,
                sessions: Sessions::default(),
                ages: Ages::default(),
                offer: Arc::new(offer),
                early_cancels: EarlyCancels::new(limits.max_early_cancels, limits.early_cancel_ttl),
                stopping: false,
            }),
            slots: Arc::new(Semaphore::new(limits.max_concurrent_calls)),
            calls: TaskTracker::new(),
            workers: Handle::current(),
            accounts: Accounts::default(),
            metrics: Arc::new(Metrics::new(Tool::ALL.len())),
            health: Arc::default(),
        }));
        hub.restore(recovered);
        Ok(hub)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in; the hello and the offer are queued as its first messages.
    pub fn attach(&self) -> Connection {
        let limits = &self.0.limits;
        let peer = Arc::new(Peer {
            outbox: Arc::new(Outbox::new(limits)),
            terms: Mutex::new(Terms {
                acks: false,
                max_message_bytes: limits.default_outbound_bytes,
            }),
            heartbeat: watch::Sender::new(limits.heartbeat),
            heard: Heard::default(),
            reached: Mutex::default(),
        });
        let mut state = self.state();
        let id = state.next_peer;
        state.next_peer += 1;
        state.peers.insert(id, Arc::clone(&peer));
        let hello = self.hello(&state);
        peer.outbox.control(hello);
        peer.outbox.control(CapabilitiesUpdate::clone(&state.offer));
        if self.0.harnesses == Harnesses::One {
            for session in state.sessions.ids() {
                self.hand_over(&mut state, id, &session);
            }
        }
        if state.stopping {
            peer.outbox.close(1001, "the executor stops");
        }
        drop(state);
        self.0.metrics.connections.add(1);
        Connection {
            hub: self.clone(),
            id,
            peer,
        }
    }

    fn hello(&self, state: &State) -> Hello {
        let resume = (self.0.harnesses == Harnesses::One).then(|| state.sessions.resumable());
        Hello {
            protocol_versions: crate::wire::PROTOCOL_VERSIONS.map(str::to_owned).to_vec(),
            executor: ExecutorInfo {
                name: env!("CARGO_PKG_NAME").to_owned(),
                os: std::env::consts::OS.to_owned(),
                arch: std::env::consts::ARCH.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            environment_id: self.0.rooms.environment_id.clone(),
            instance_id: self.0.instance_id.clone(),
            capabilities: state.offer.capabilities,
            limits: AdvertisedLimits::from(&*self.0.limits),
            resume,
        }
    }

    /// Advertises `offer` from now on; connections are told where it differs.
    pub fn reoffer(&self, offer: CapabilitiesUpdate) {
        let mut state = self.state();
        if *state.offer == offer {
            return;
        }
        state.offer = Arc::new(offer);
        for peer in state.peers.values() {
            peer.outbox.control(CapabilitiesUpdate::clone(&state.offer));
        }
    }

    /// Advertises from now on that a restart forgets calls, and why.
    pub fn journal_lost(&self, reason: String) {
        let mut offer = CapabilitiesUpdate::clone(&self.state().offer);
        "memory".clone_into(&mut offer.environment.journal);
        offer
            .environment
            .reasons
            .insert("journal".to_owned(), reason);
        self.reoffer(offer);
    }

    /// Notes that the daemon lives, for the next one.
    pub fn note_alive(&self) {
        self.0.journal.alive();
    }

    /// Returns the outbox of the connection that holds a session, and its terms.
    fn holder(&self, session_id: &SessionId) -> Option<Arc<Peer>> {
        let state = self.state();
        let holder = state.sessions.get(session_id)?.holder?;
        state.peers.get(&holder).cloned()
    }
}
