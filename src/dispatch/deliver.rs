//! Results on their way: spelled once, kept until the harness has them, sent again where it may not.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::too_large;
use super::fit::{spell, spell_to_fit};
use super::kept::{Accounted, Body, ByAge, Kept};
use super::outbox::Receipt;
use super::registry::Digest;
use super::session::{Session, Sessions};
use super::{Hub, Peer, PeerId, State};
use crate::journal::SessionJournal;
use crate::wire::{Details, ResultAck, SessionId, ToolCall, ToolCallId, ToolResult};

/// A result above this is not kept once the harness has it; asked for again, it is said to be too large.
const KEPT_AFTER_DELIVERY: usize = 64 * 1024;

/// Part of the memory for results that is made free of delivered ones at one time.
const SLACK: usize = 16;

/// Finished calls by age, for the bounds of the whole daemon.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Since their end; those with large results are given up before others, which free next to nothing.
    large: ByAge,
    small: ByAge,
    /// Since the harness had their result; one queue gives up results, the other forgets calls.
    delivered: ByAge,
    known: ByAge,
}

impl Hub {
    /// Ends a call: spells its result, keeps it, and queues it where somebody holds the session. Returns its size. The
    /// call's slot is held until then.
    pub(super) fn deliver(
        &self,
        result: ToolResult<Details>,
        journal: &SessionJournal,
        digest: &Digest,
        slot: OwnedSemaphorePermit,
    ) -> usize {
        let (session_id, tool_call_id) = (result.session_id.clone(), result.tool_call_id.clone());
        let max = self.largest_message(&session_id);
        // What the journal keeps must be there as one piece.
        let limits = &self.0.limits;
        let long = limits.fragment_bytes.max(limits.journal_result_bytes);
        let message = spell_to_fit(result, max, long);
        let size = message.size();
        // Ahead of every queue: what a harness has seen must be known to the next daemon.
        journal.finished(&tool_call_id, digest, message.whole());
        let text = Accounted::new(message, &self.0.accounts);
        let kept = Kept::new(Body::Whole(Arc::clone(&text)), &self.0.accounts);
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&session_id) else {
            return size;
        };
        if !session.registry.finish(&tool_call_id, kept, Instant::now()) {
            return size;
        }
        // Before anybody can see the result: whoever has it finds a slot free for the next call.
        drop(slot);
        let holder = session.holder;
        let peer = holder.and_then(|peer| state.peers.get(&peer)).cloned();
        if let Some(peer) = &peer {
            self.queue(peer, session_id.clone(), tool_call_id.clone(), &text);
        }
        self.note_finished(&mut state, &session_id, tool_call_id);
        drop(state);
        if let Some(peer) = peer {
            peer.outbox.send();
        }
        size
    }

    /// Returns the largest message that the harness of a session takes, or the last that it had.
    fn largest_message(&self, session_id: &SessionId) -> usize {
        let state = self.state();
        let session = state.sessions.get(session_id);
        let holder = session.and_then(|session| state.peers.get(&session.holder?));
        holder
            .map(|peer| peer.terms().max_message_bytes)
            .or_else(|| session?.last_max_message_bytes)
            .unwrap_or(self.0.limits.default_outbound_bytes)
    }

    /// Holds the bounds after a call has been added to the finished ones.
    pub(super) fn note_finished(
        &self,
        state: &mut State,
        session_id: &SessionId,
        tool_call_id: ToolCallId,
    ) {
        let State { sessions, ages, .. } = state;
        let kept = sessions
            .get(session_id)
            .and_then(|session| session.registry.result(&tool_call_id)?.whole());
        let queue = if kept.is_some_and(|text| text.size() > KEPT_AFTER_DELIVERY) {
            &mut ages.large
        } else {
            &mut ages.small
        };
        queue.push(session_id.clone(), tool_call_id, |session, call| {
            is_whole(sessions, session, call)
        });
        if let Some(session) = sessions.get_mut(session_id)
            && let Some(old) = session
                .registry
                .longest_waiting(self.0.limits.max_kept_results)
                .cloned()
        {
            give_up(
                session,
                session_id,
                &old,
                "too many results of the session were waiting",
            );
        }
        self.make_room(sessions, ages);
    }

    fn queue(
        &self,
        peer: &Arc<Peer>,
        session_id: SessionId,
        tool_call_id: ToolCallId,
        text: &Arc<Accounted>,
    ) {
        // Weak, since the peer owns the outbox that owns this receipt.
        let (hub, writer, written) = (self.clone(), Arc::downgrade(peer), Arc::clone(text));
        let receipt = Receipt::new(move || {
            // Counted until the writer is done with the bytes.
            drop(written);
            if writer.upgrade().is_some_and(|writer| !writer.terms().acks) {
                hub.note_written(&session_id, &tool_call_id);
            }
        });
        peer.outbox.result(Arc::clone(text), receipt);
    }

    /// Sends a finished call's result once more.
    pub(super) fn send_again(&self, peer: &Arc<Peer>, call: &ToolCall, kept: &Kept) {
        let (session_id, tool_call_id) = (call.session_id.clone(), call.tool_call_id.clone());
        let text = kept.text(&session_id, &tool_call_id, &self.0.accounts);
        self.queue(peer, session_id, tool_call_id, &text);
        peer.outbox.wake();
    }

    /// Queues every result of a session that its harness may not have.
    pub(super) fn redeliver(&self, state: &State, peer: PeerId, id: &SessionId) {
        let (Some(peer), Some(session)) = (state.peers.get(&peer), state.sessions.get(id)) else {
            return;
        };
        for call in session.registry.waiting_ids() {
            if let Some(kept) = session.registry.result(&call) {
                let text = kept.text(id, &call, &self.0.accounts);
                self.queue(peer, id.clone(), call, &text);
            }
        }
        peer.outbox.wake();
    }

    /// Acts on `tool.result.ack`.
    pub(super) fn acknowledge(&self, peer: PeerId, ack: &ResultAck) {
        let mut state = self.state();
        let State { sessions, ages, .. } = &mut *state;
        let session = sessions.get_mut(&ack.session_id);
        if session.is_some_and(|session| {
            session.holder == Some(peer) && mark_delivered(session, &ack.tool_call_id)
        }) {
            self.note_delivered(sessions, ages, &ack.session_id, &ack.tool_call_id);
        }
    }

    /// Holds the bounds after a call's result has been delivered.
    pub(super) fn note_delivered(
        &self,
        sessions: &mut Sessions,
        ages: &mut Ages,
        session: &SessionId,
        call: &ToolCallId,
    ) {
        let Ages {
            delivered, known, ..
        } = ages;
        delivered.push(session.clone(), call.clone(), |session, call| {
            is_whole(sessions, session, call)
        });
        known.push(session.clone(), call.clone(), |session, call| {
            sessions
                .get(session)
                .is_some_and(|session| session.registry.knows(call))
        });
        while self.0.accounts.calls() > self.0.limits.max_remembered_calls {
            let Some((session, call)) = known.pop() else {
                return;
            };
            if let Some(session) = sessions.get_mut(&session) {
                session.registry.forget(&call);
            }
        }
    }

    fn note_written(&self, session_id: &SessionId, tool_call_id: &ToolCallId) {
        let mut state = self.state();
        if let Some(session) = state.sessions.get_mut(session_id)
            && let Some(kept) = session.registry.result_mut(tool_call_id)
        {
            kept.written = Some(Instant::now());
        }
    }

    /// Decides about what was written for a v1 harness: what its connection has outlived by `patience` has arrived, if
    /// the harness has answered a ping since; where the connection is `lost`, the rest may not have.
    ///
    /// A line that has gone dead lives on for two heartbeats, and a v1.1 harness behind it is taken for v1 as long as
    /// its welcome has not come: neither must count as an arrival.
    pub(super) fn settle_written(
        &self,
        state: &mut State,
        id: &SessionId,
        patience: Duration,
        lost: bool,
    ) {
        let State {
            sessions,
            ages,
            peers,
            ..
        } = state;
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        let holder = session.holder.and_then(|holder| peers.get(&holder));
        let acks = holder.is_some_and(|peer| peer.terms().acks);
        let reached = holder.and_then(|peer| peer.reached());
        let mut arrived = Vec::new();
        for call in session.registry.waiting_ids() {
            let kept = session.registry.result_mut(&call);
            let Some((at, kept)) = kept.and_then(|kept| Some((kept.written?, kept))) else {
                continue;
            };
            let reached = patience.is_zero() || reached >= Some(at);
            if acks || !reached || at.elapsed() < patience {
                if lost {
                    kept.written = None;
                }
            } else if mark_delivered(session, &call) {
                arrived.push(call);
            }
        }
        for call in arrived {
            self.note_delivered(sessions, ages, id, &call);
        }
    }

    /// Gives up kept results where the daemon's memory for them is full: delivered ones first, then large ones, oldest
    /// first.
    fn make_room(&self, sessions: &mut Sessions, ages: &mut Ages) {
        let limit = self.0.limits.result_memory_bytes;
        if self.0.accounts.bytes() > limit {
            self.give_up_delivered(sessions, ages);
            self.give_up_oldest(sessions, &mut ages.large, limit);
            self.give_up_oldest(sessions, &mut ages.small, limit);
        }
    }

    /// Gives up delivered results until some of the memory for results is free: calls that end side by side add theirs
    /// before any of them makes room.
    pub(super) fn give_up_delivered(&self, sessions: &mut Sessions, ages: &mut Ages) {
        let limit = self.0.limits.result_memory_bytes;
        self.give_up_oldest(sessions, &mut ages.delivered, limit - limit / SLACK);
    }

    fn give_up_oldest(&self, sessions: &mut Sessions, queue: &mut ByAge, target: usize) {
        while self.0.accounts.bytes() > target
            && let Some((session, call)) = queue.pop()
        {
            if let Some(it) = sessions.get_mut(&session) {
                give_up(it, &session, &call, "the memory for results was full");
            }
        }
    }
}

fn is_whole(sessions: &Sessions, session: &SessionId, call: &ToolCallId) -> bool {
    let session = sessions.get(session);
    session
        .and_then(|session| session.registry.result(call))
        .is_some_and(|kept| kept.whole().is_some())
}

/// Says that the harness has a result; returns whether that is news.
fn mark_delivered(session: &mut Session, call: &ToolCallId) -> bool {
    let Some(kept) = session.registry.deliver(call) else {
        return false;
    };
    if kept
        .whole()
        .is_some_and(|text| text.size() > KEPT_AFTER_DELIVERY)
    {
        kept.body = Body::Gone("it was large and had been delivered");
    }
    session.journal.delivered(call);
    true
}

/// Lets a small result stand for one that is not kept any longer, also where that is queued.
pub(super) fn give_up(session: &mut Session, id: &SessionId, call: &ToolCallId, why: &'static str) {
    if let Some(kept) = session.registry.give_up(call)
        && let Some(text) = kept.whole()
    {
        text.replace(spell(too_large(id.clone(), call.clone(), why)));
        kept.body = Body::Gone(why);
    }
}
