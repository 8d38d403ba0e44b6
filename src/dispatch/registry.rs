//! The calls of one session: what runs and what has finished; and the cancels that came before their calls.
//!
//! Plain state machines without locks, tasks or clocks of their own, so that they can be tested alone against a
//! model. They are what keeps a call from being run twice (protocol section 7).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::{SessionId, ToolCallId};

/// Identifies the name and input of a call without keeping them.
pub(crate) type Digest = [u8; 32];

/// What a call meets when it arrives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission<R> {
    /// It is new and now registered as running.
    New,
    /// The same call runs already; its one result answers both.
    Attached,
    /// The same call has finished; here is its result.
    Finished(R),
    /// The id belongs to a call with another name or input.
    Conflict,
}

/// The bounds of a registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) finished: usize,
    pub(crate) finished_ttl: Duration,
}

/// The calls of one session. `S` stops a running call, `R` is the result of a finished one.
#[derive(Debug)]
pub(crate) struct Registry<S, R> {
    bounds: Bounds,
    running: HashMap<ToolCallId, (Digest, S)>,
    finished: HashMap<ToolCallId, Finished<R>>,
    /// Finished ids, oldest first.
    order: VecDeque<ToolCallId>,
}

#[derive(Debug)]
struct Finished<R> {
    digest: Digest,
    result: R,
    at: Instant,
}

impl<S, R: Clone> Registry<S, R> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            running: HashMap::new(),
            finished: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Returns whether the id is taken by a running or a finished call.
    pub(crate) fn knows(&self, id: &ToolCallId) -> bool {
        self.running.contains_key(id) || self.finished.contains_key(id)
    }

    /// Takes a call in. `stop` is kept only where the call is new.
    pub(crate) fn admit(
        &mut self,
        id: &ToolCallId,
        digest: Digest,
        stop: S,
        now: Instant,
    ) -> Admission<R> {
        self.expire(now);
        if let Some((running, _)) = self.running.get(id) {
            return if *running == digest {
                Admission::Attached
            } else {
                Admission::Conflict
            };
        }
        if let Some(finished) = self.finished.get(id) {
            return if finished.digest == digest {
                Admission::Finished(finished.result.clone())
            } else {
                Admission::Conflict
            };
        }
        self.running.insert(id.clone(), (digest, stop));
        Admission::New
    }

    /// Takes a call out again that was admitted but will not be run, as if it had never come.
    pub(crate) fn withdraw(&mut self, id: &ToolCallId) {
        self.running.remove(id);
    }

    /// Moves a running call to the finished ones. Returns whether it was running.
    pub(crate) fn finish(&mut self, id: &ToolCallId, result: R, now: Instant) -> bool {
        let Some((digest, _)) = self.running.remove(id) else {
            return false;
        };
        self.finished.insert(
            id.clone(),
            Finished {
                digest,
                result,
                at: now,
            },
        );
        self.order.push_back(id.clone());
        self.expire(now);
        true
    }

    /// Returns what stops a running call.
    pub(crate) fn stop(&self, id: &ToolCallId) -> Option<&S> {
        self.running.get(id).map(|(_, stop)| stop)
    }

    /// Returns what stops each running call, in no order.
    pub(crate) fn running(&self) -> impl Iterator<Item = &S> {
        self.running.values().map(|(_, stop)| stop)
    }

    /// Returns the ids of the running calls, in order.
    pub(crate) fn running_ids(&self) -> Vec<ToolCallId> {
        let mut ids: Vec<_> = self.running.keys().cloned().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the result of a finished call, to be changed in place.
    pub(crate) fn result_mut(&mut self, id: &ToolCallId) -> Option<&mut R> {
        self.finished
            .get_mut(id)
            .map(|finished| &mut finished.result)
    }

    /// Shows the results of finished calls, oldest first.
    pub(crate) fn each_result(&mut self, mut each: impl FnMut(&ToolCallId, &mut R)) {
        for id in &self.order {
            if let Some(finished) = self.finished.get_mut(id) {
                each(id, &mut finished.result);
            }
        }
    }

    /// Forgets what is past its time or beyond the bounds.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(id) = self.order.front() {
            let aged = self
                .finished
                .get(id)
                .is_none_or(|finished| is_old(finished.at, self.bounds.finished_ttl, now));
            if !aged && self.order.len() <= self.bounds.finished {
                break;
            }
            self.finished.remove(id);
            self.order.pop_front();
        }
    }
}

fn is_old(at: Instant, ttl: Duration, now: Instant) -> bool {
    now.saturating_duration_since(at) >= ttl
}

/// Cancels that overtook their calls (protocol section 6). Beyond the bound the oldest is forgotten.
#[derive(Debug)]
pub(crate) struct EarlyCancels {
    bound: usize,
    ttl: Duration,
    known: VecDeque<(SessionId, ToolCallId, Instant)>,
}

impl EarlyCancels {
    pub(crate) fn new(bound: usize, ttl: Duration) -> Self {
        Self {
            bound,
            ttl,
            known: VecDeque::new(),
        }
    }

    pub(crate) fn add(&mut self, session: &SessionId, call: &ToolCallId, now: Instant) {
        self.take(session, call, now);
        if self.known.len() >= self.bound {
            self.known.pop_front();
        }
        self.known.push_back((session.clone(), call.clone(), now));
    }

    /// Returns whether the call was cancelled before, and forgets it.
    pub(crate) fn take(&mut self, session: &SessionId, call: &ToolCallId, now: Instant) -> bool {
        while self
            .known
            .front()
            .is_some_and(|(_, _, at)| is_old(*at, self.ttl, now))
        {
            self.known.pop_front();
        }
        let at = self
            .known
            .iter()
            .position(|(s, c, _)| s == session && c == call);
        at.and_then(|at| self.known.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        finished: 3,
        finished_ttl: Duration::from_secs(10),
    };

    #[derive(Debug, Clone)]
    enum Step {
        Admit { call: u8, digest: u8 },
        Finish { call: u8 },
        Withdraw { call: u8 },
        Wait { seconds: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let call = 0..6u8;
        prop_oneof![
            4 => (call.clone(), 0..2u8).prop_map(|(call, digest)| Step::Admit { call, digest }),
            3 => call.clone().prop_map(|call| Step::Finish { call }),
            1 => call.prop_map(|call| Step::Withdraw { call }),
            1 => (0..8u64).prop_map(|seconds| Step::Wait { seconds }),
        ]
    }

    /// What the registry should know, in the plainest form.
    #[derive(Default)]
    struct Model {
        running: BTreeMap<u8, u8>,
        /// Call, digest, result and time, oldest first.
        finished: Vec<(u8, u8, u64, u64)>,
        executions: u64,
    }

    impl Model {
        fn expire(&mut self, now: u64) {
            self.finished
                .retain(|(_, _, _, at)| now - at < BOUNDS.finished_ttl.as_secs());
            let excess = self.finished.len().saturating_sub(BOUNDS.finished);
            self.finished.drain(..excess);
        }

        fn admit(&mut self, call: u8, digest: u8, now: u64) -> Admission<u64> {
            self.expire(now);
            let known = self.finished.iter().find(|(known, ..)| *known == call);
            match (self.running.get(&call), known) {
                (Some(running), _) if *running == digest => Admission::Attached,
                (None, Some((_, finished, result, _))) if *finished == digest => {
                    Admission::Finished(*result)
                }
                (Some(_), _) | (None, Some(_)) => Admission::Conflict,
                (None, None) => {
                    self.running.insert(call, digest);
                    Admission::New
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_registry_does_what_its_model_does(steps in prop::collection::vec(step(), 1..80)) {
            let start = Instant::now();
            let mut registry = Registry::<u8, u64>::new(BOUNDS);
            let mut model = Model::default();
            let mut now = 0;
            let id = |call: u8| ToolCallId::new(&format!("c{call}")).unwrap();
            for step in steps {
                let at = start + Duration::from_secs(now);
                match step {
                    Step::Admit { call, digest } => {
                        let got = registry.admit(&id(call), [digest; 32], call, at);
                        prop_assert_eq!(got, model.admit(call, digest, now));
                    }
                    Step::Finish { call } => {
                        let ran = model.running.remove(&call);
                        model.executions += 1;
                        let result = model.executions;
                        prop_assert_eq!(registry.finish(&id(call), result, at), ran.is_some());
                        if let Some(digest) = ran {
                            model.finished.push((call, digest, result, now));
                            model.expire(now);
                        }
                    }
                    Step::Withdraw { call } => {
                        registry.withdraw(&id(call));
                        model.running.remove(&call);
                    }
                    Step::Wait { seconds } => now += seconds,
                }
                for call in 0..6 {
                    prop_assert_eq!(registry.stop(&id(call)).is_some(), model.running.contains_key(&call));
                }
                prop_assert!(registry.order.len() <= BOUNDS.finished);
                prop_assert_eq!(registry.order.len(), registry.finished.len());
            }
        }

        #[test]
        fn an_early_cancel_is_taken_once_and_only_in_time(waits in prop::collection::vec(0..20u64, 1..20)) {
            let start = Instant::now();
            let mut cancels = EarlyCancels::new(2, Duration::from_secs(30));
            let session = SessionId::new("s").unwrap();
            let mut now = 0;
            for (at, wait) in waits.into_iter().enumerate() {
                let call = ToolCallId::new(&format!("c{at}")).unwrap();
                cancels.add(&session, &call, start + Duration::from_secs(now));
                now += 2 * wait;
                let later = start + Duration::from_secs(now);
                prop_assert_eq!(cancels.take(&session, &call, later), 2 * wait < 30);
                prop_assert!(!cancels.take(&session, &call, later));
            }
        }
    }
}
