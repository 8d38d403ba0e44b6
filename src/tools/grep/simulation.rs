//! A search that can be stopped anywhere: the states of the pattern's automaton are followed side by side.
//!
//! It is slower than the fast engine on most texts and never worse than pattern times text. It finds the same match:
//! the leftmost, and of those that begin there the one that the pattern prefers.

use std::mem::swap;

use regex_automata::nfa::thompson::{NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::Hir;

use crate::stop::Stop;

/// The search was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the search was stopped")]
pub(super) struct Halted;

/// Steps between two looks at the stop: some milliseconds.
const STEPS_PER_LOOK: usize = 500_000;

/// States that are alive, in the order of preference, each with the place where its match began.
#[derive(Debug)]
struct Alive {
    order: Vec<(StateID, usize)>,
    /// For each state the round in which it was added last.
    round_of: Vec<usize>,
    round: usize,
}

impl Alive {
    fn new(states: usize) -> Self {
        Self {
            order: Vec::new(),
            round_of: vec![0; states],
            round: 1,
        }
    }

    fn clear(&mut self) {
        self.order.clear();
        self.round += 1;
    }

    /// Marks a state; returns whether it is new.
    fn mark(&mut self, state: StateID) -> bool {
        match self.round_of.get_mut(state.as_usize()) {
            Some(round) if *round != self.round => {
                *round = self.round;
                true
            }
            _ => false,
        }
    }
}

/// One search.
#[derive(Debug)]
pub(super) struct Simulation<'a> {
    nfa: &'a NFA,
    waiting: Vec<StateID>,
    steps: usize,
}

impl<'a> Simulation<'a> {
    /// Compiles a pattern; `None` where it takes more memory than it may.
    pub(super) fn compile(hir: &Hir, bytes: usize) -> Option<NFA> {
        let config = NFA::config()
            .utf8(false)
            .nfa_size_limit(Some(bytes))
            .which_captures(WhichCaptures::None);
        NFA::compiler().configure(config).build_from_hir(hir).ok()
    }

    /// Makes a search.
    pub(super) fn new(nfa: &'a NFA) -> Self {
        Self {
            nfa,
            waiting: Vec::new(),
            steps: 0,
        }
    }

    /// Returns the first match between `from` and `end`; what stands around them is seen by `\b` and the like.
    ///
    /// # Errors
    /// [`Halted`] where the stop came first.
    pub(super) fn find(
        &mut self,
        text: &[u8],
        from: usize,
        end: usize,
        stop: &Stop,
    ) -> Result<Option<(usize, usize)>, Halted> {
        let mut now = Alive::new(self.nfa.states().len());
        let mut next = Alive::new(self.nfa.states().len());
        let mut best = None;
        for at in from..=end {
            if self.steps >= STEPS_PER_LOOK {
                self.steps = 0;
                if stop.cause().is_some() {
                    return Err(Halted);
                }
            }
            if best.is_none() {
                // A match that begins here is less wanted than any that began before.
                self.follow(&mut now, self.nfa.start_anchored(), at, text, at);
            }
            if now.order.is_empty() && best.is_some() {
                break;
            }
            self.steps += now.order.len() + 1;
            let byte = text.get(at).copied().filter(|_| at < end);
            for &(state, began) in &now.order {
                let to = match (self.nfa.state(state), byte) {
                    (State::Match { .. }, _) => {
                        best = Some((began, at));
                        // Those after it are less wanted.
                        break;
                    }
                    (State::ByteRange { trans }, Some(byte)) if trans.matches_byte(byte) => {
                        Some(trans.next)
                    }
                    (State::Sparse(many), Some(byte)) => many.matches_byte(byte),
                    (State::Dense(many), Some(byte)) => many.matches_byte(byte),
                    _ => None,
                };
                if let Some(to) = to {
                    self.follow(&mut next, to, began, text, at + 1);
                }
            }
            swap(&mut now, &mut next);
            next.clear();
        }
        Ok(best)
    }

    /// Adds a state and all that are reached from it without a byte, the most wanted first.
    fn follow(&mut self, alive: &mut Alive, state: StateID, began: usize, text: &[u8], at: usize) {
        self.waiting.push(state);
        while let Some(state) = self.waiting.pop() {
            if !alive.mark(state) {
                continue;
            }
            self.steps += 1;
            match self.nfa.state(state) {
                State::Look { look, next } => {
                    if self.nfa.look_matcher().matches(*look, text, at) {
                        self.waiting.push(*next);
                    }
                }
                State::Union { alternates } => self.waiting.extend(alternates.iter().rev()),
                State::BinaryUnion { alt1, alt2 } => self.waiting.extend([*alt2, *alt1]),
                State::Capture { next, .. } => self.waiting.push(*next),
                State::Fail => {}
                State::ByteRange { .. }
                | State::Sparse(_)
                | State::Dense(_)
                | State::Match { .. } => alive.order.push((state, began)),
            }
        }
    }
}
