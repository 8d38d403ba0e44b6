//! The calls of one session: what runs and what has finished; and the cancels that came before their calls.
//!
//! Plain state machines without locks, tasks or clocks of their own, so that they can be tested alone against a
//! model. They are what keeps a call from being run twice (protocol section 7).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::{SessionId, ToolCallId};

pub(crate) use crate::journal::Digest;

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
    /// It is new, but no more calls can be remembered before harnesses have the results of those that are.
    Full,
}

/// The bounds of a registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) finished: usize,
    pub(crate) finished_ttl: Duration,
}

/// The calls of one session. `S` stops a running call, `R` is the result of a finished one.
///
/// A finished call *waits* until its harness is known to have the result; until then it is never forgotten.
#[derive(Debug)]
pub(crate) struct Registry<S, R> {
    bounds: Bounds,
    running: BTreeMap<ToolCallId, (Digest, S)>,
    /// Boxed, since a hash table in which calls come and go doubles after hours, when the traces of those that went have
    /// filled it: at once, and by the size of its entries.
    finished: HashMap<ToolCallId, Box<Finished<R>>>,
    /// Calls that wait, with their result whole, in the order in which they finished.
    waiting: BTreeMap<u64, ToolCallId>,
    /// Calls that wait, and whose result was given up.
    given_up: BTreeMap<u64, ToolCallId>,
    /// Calls whose result the harness has.
    delivered: BTreeMap<u64, ToolCallId>,
    next: u64,
}

#[derive(Debug)]
struct Finished<R> {
    digest: Digest,
    result: R,
    at: Instant,
    number: u64,
}

impl<S, R: Clone> Registry<S, R> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            running: BTreeMap::new(),
            finished: HashMap::new(),
            waiting: BTreeMap::new(),
            given_up: BTreeMap::new(),
            delivered: BTreeMap::new(),
            next: 0,
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
        if self.is_full() {
            return Admission::Full;
        }
        self.running.insert(id.clone(), (digest, stop));
        Admission::New
    }

    /// Whether as many calls wait as may be remembered.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() + self.given_up.len() >= self.bounds.finished
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
        self.restore(id, digest, result, now);
        self.expire(now);
        true
    }

    /// Takes in a call that finished in an earlier life, after those that are there. It waits.
    pub(crate) fn restore(&mut self, id: &ToolCallId, digest: Digest, result: R, at: Instant) {
        let number = self.next;
        self.next += 1;
        let finished = Finished {
            digest,
            result,
            at,
            number,
        };
        if let Some(other) = self.finished.insert(id.clone(), Box::new(finished)) {
            self.unlist(other.number);
        }
        self.waiting.insert(number, id.clone());
    }

    /// Says that the harness has the result of a finished call. Returns it where that is news.
    pub(crate) fn deliver(&mut self, id: &ToolCallId) -> Option<&mut R> {
        let finished = self.finished.get_mut(id)?;
        let number = finished.number;
        let waited = self.waiting.remove(&number);
        let id = waited.or_else(|| self.given_up.remove(&number))?;
        self.delivered.insert(number, id);
        Some(&mut finished.result)
    }

    /// Says that the result of a call is not whole any more. Returns it, to be changed in place.
    pub(crate) fn give_up(&mut self, id: &ToolCallId) -> Option<&mut R> {
        let finished = self.finished.get_mut(id)?;
        if let Some(id) = self.waiting.remove(&finished.number) {
            self.given_up.insert(finished.number, id);
        }
        Some(&mut finished.result)
    }

    /// Returns the call that has waited longest with its result whole, where more than `most` do.
    pub(crate) fn longest_waiting(&self, most: usize) -> Option<&ToolCallId> {
        let excess = self.waiting.len() > most;
        excess.then(|| self.waiting.values().next()).flatten()
    }

    /// Forgets a call whose result the harness has. Returns whether there was one.
    pub(crate) fn forget(&mut self, id: &ToolCallId) -> bool {
        let known = self.finished.get(id).map(|finished| finished.number);
        let gone = known.is_some_and(|number| self.delivered.remove(&number).is_some());
        if gone {
            self.finished.remove(id);
        }
        gone
    }

    fn unlist(&mut self, number: u64) {
        for list in [&mut self.waiting, &mut self.given_up, &mut self.delivered] {
            list.remove(&number);
        }
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

    /// Returns the ids of the calls that wait, in the order in which they finished.
    pub(crate) fn waiting_ids(&self) -> Vec<ToolCallId> {
        let mut ids: Vec<_> = self.given_up.iter().chain(&self.waiting).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// Returns the result of a finished call.
    pub(crate) fn result(&self, id: &ToolCallId) -> Option<&R> {
        self.finished.get(id).map(|finished| &finished.result)
    }

    /// Returns the result of a finished call, to be changed in place.
    pub(crate) fn result_mut(&mut self, id: &ToolCallId) -> Option<&mut R> {
        self.finished
            .get_mut(id)
            .map(|finished| &mut finished.result)
    }

    /// Forgets what has been delivered and is past its time or beyond the bounds.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(oldest) = self.delivered.first_entry() {
            let aged = self
                .finished
                .get(oldest.get())
                .is_none_or(|finished| is_old(finished.at, self.bounds.finished_ttl, now));
            if !aged && self.finished.len() <= self.bounds.finished {
                break;
            }
            let id = oldest.remove();
            self.finished.remove(&id);
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
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        finished: 3,
        finished_ttl: Duration::from_secs(10),
    };

    #[derive(Debug, Clone)]
    enum Step {
        Admit {
            call: u8,
            digest: u8,
        },
        Finish {
            call: u8,
        },
        Withdraw {
            call: u8,
        },
        Deliver {
            call: u8,
        },
        GiveUp {
            call: u8,
        },
        Forget {
            call: u8,
        },
        Wait {
            seconds: u64,
        },
        /// The registry is made anew from what another life knew of it.
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        let call = 0..6u8;
        prop_oneof![
            6 => (call.clone(), 0..2u8).prop_map(|(call, digest)| Step::Admit { call, digest }),
            5 => call.clone().prop_map(|call| Step::Finish { call }),
            1 => call.clone().prop_map(|call| Step::Withdraw { call }),
            3 => call.clone().prop_map(|call| Step::Deliver { call }),
            1 => call.clone().prop_map(|call| Step::GiveUp { call }),
            1 => call.prop_map(|call| Step::Forget { call }),
            1 => (0..8u64).prop_map(|seconds| Step::Wait { seconds }),
            1 => Just(Step::Restart),
        ]
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Ended {
        call: u8,
        digest: u8,
        result: u64,
        at: u64,
        delivered: bool,
    }

    /// What the registry should know, in the plainest form.
    #[derive(Default)]
    struct Model {
        running: BTreeMap<u8, u8>,
        /// Oldest first.
        finished: Vec<Ended>,
        executions: u64,
    }

    impl Model {
        fn expire(&mut self, now: u64) {
            while let Some(at) = self.finished.iter().position(|one| one.delivered) {
                let aged = now - self.finished[at].at >= BOUNDS.finished_ttl.as_secs();
                if !aged && self.finished.len() <= BOUNDS.finished {
                    return;
                }
                self.finished.remove(at);
            }
        }

        fn find(&mut self, call: u8) -> Option<&mut Ended> {
            self.finished.iter_mut().find(|one| one.call == call)
        }

        fn waiting(&self) -> Vec<u8> {
            let waiting = self.finished.iter().filter(|one| !one.delivered);
            waiting.map(|one| one.call).collect()
        }

        fn admit(&mut self, call: u8, digest: u8, now: u64) -> Admission<u64> {
            self.expire(now);
            let full = self.waiting().len() >= BOUNDS.finished;
            match (self.running.get(&call).copied(), self.find(call)) {
                (Some(running), _) if running == digest => Admission::Attached,
                (None, Some(ended)) if ended.digest == digest => Admission::Finished(ended.result),
                (Some(_), _) | (None, Some(_)) => Admission::Conflict,
                (None, None) if full => Admission::Full,
                (None, None) => {
                    self.running.insert(call, digest);
                    Admission::New
                }
            }
        }
    }

    fn id(call: u8) -> ToolCallId {
        ToolCallId::new(&format!("c{call}")).unwrap()
    }

    proptest! {
        #[test]
        fn the_registry_does_what_its_model_does(steps in prop::collection::vec(step(), 1..120)) {
            let start = Instant::now();
            let mut registry = Registry::<u8, u64>::new(BOUNDS);
            let mut model = Model::default();
            let mut now = 0;
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
                            model.finished.push(Ended { call, digest, result, at: now, delivered: false });
                            model.expire(now);
                        }
                    }
                    Step::Withdraw { call } => {
                        registry.withdraw(&id(call));
                        model.running.remove(&call);
                    }
                    Step::Deliver { call } => {
                        let news = model.find(call).is_some_and(|one| !std::mem::replace(&mut one.delivered, true));
                        prop_assert_eq!(registry.deliver(&id(call)).is_some(), news);
                    }
                    Step::GiveUp { call } => {
                        let known = model.find(call).map(|one| { one.result = 0; one.result });
                        let found = registry.give_up(&id(call)).map(|result| { *result = 0; 0 });
                        prop_assert_eq!(found, known);
                    }
                    Step::Forget { call } => {
                        let known = model.find(call).is_some_and(|one| one.delivered);
                        model.finished.retain(|one| one.call != call || !one.delivered);
                        prop_assert_eq!(registry.forget(&id(call)), known);
                    }
                    Step::Wait { seconds } => now += seconds,
                    Step::Restart => {
                        registry = Registry::new(BOUNDS);
                        for one in &model.finished {
                            let at = start + Duration::from_secs(one.at);
                            registry.restore(&id(one.call), [one.digest; 32], one.result, at);
                            if one.delivered {
                                registry.deliver(&id(one.call)).unwrap();
                            }
                        }
                        // What ran is known as having ended in a way that nobody knows.
                        for (call, digest) in std::mem::take(&mut model.running) {
                            registry.restore(&id(call), [digest; 32], u64::MAX, at);
                            model.finished.push(Ended { call, digest, result: u64::MAX, at: now, delivered: false });
                        }
                    }
                }
                for call in 0..6 {
                    prop_assert_eq!(registry.stop(&id(call)).is_some(), model.running.contains_key(&call));
                    prop_assert_eq!(registry.result(&id(call)).copied(), model.find(call).map(|one| one.result));
                }
                let waiting: Vec<_> = model.waiting().into_iter().map(id).collect();
                prop_assert_eq!(registry.waiting_ids(), waiting);
                let listed = registry.waiting.len() + registry.given_up.len() + registry.delivered.len();
                prop_assert_eq!(listed, registry.finished.len());
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
