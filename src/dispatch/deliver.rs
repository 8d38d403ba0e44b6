//! Results on their way: encoded once, kept until the harness has them, sent again where it may not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;

use super::answer::too_large;
use super::outbox::Receipt;
use super::session::Session;
use super::{Hub, Peer, PeerId, State};
use crate::wire::{
    ContentBlock, ResultAck, SessionId, ToolCall, ToolCallId, ToolResult, encode_result,
};

/// A result above this is not kept once the harness has it; asked for again, it is said to be too large.
const KEPT_AFTER_DELIVERY: usize = 64 * 1024;

/// What says that a result was given up takes nearly as much as a result below this.
const WORTH_GIVING_UP: usize = 1024;

/// A finished call's encoded result.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    text: Arc<Accounted>,
    delivery: Delivery,
}

impl Kept {
    /// Whether the harness is known to have it.
    pub(super) fn is_delivered(&self) -> bool {
        self.delivery == Delivery::Done
    }
}

/// How far a result has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// Not known to have arrived.
    Pending,
    /// Written for a harness that acknowledges nothing (v1). It counts as delivered once its connection has lived for one more heartbeat.
    Written(Instant),
    /// The harness has it.
    Done,
}

/// Bytes that count against the daemon's memory for results as long as anybody holds them.
#[derive(Debug)]
struct Accounted {
    bytes: Bytes,
    account: Arc<AtomicUsize>,
}

impl Accounted {
    fn new(bytes: Bytes, account: &Arc<AtomicUsize>) -> Arc<Self> {
        account.fetch_add(bytes.len(), Ordering::Relaxed);
        Arc::new(Self {
            bytes,
            account: Arc::clone(account),
        })
    }
}

impl Drop for Accounted {
    fn drop(&mut self) {
        self.account.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Hub {
    /// Ends a call: encodes its result, keeps it, and queues it where somebody holds the session. Returns its size.
    pub(super) fn deliver(&self, result: ToolResult) -> usize {
        let (session_id, tool_call_id) = (result.session_id.clone(), result.tool_call_id.clone());
        let max = self
            .holder(&session_id)
            .map_or(self.0.limits.default_outbound_bytes, |peer| {
                peer.terms().max_message_bytes
            });
        let bytes = encode_to_fit(result, max);
        let size = bytes.len();
        let text = Accounted::new(bytes, &self.0.kept_bytes);
        let kept = Kept {
            text: Arc::clone(&text),
            delivery: Delivery::Pending,
        };
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&session_id) else {
            return size;
        };
        if !session.registry.finish(&tool_call_id, kept, Instant::now()) {
            return size;
        }
        let holder = session.holder;
        if let Some(peer) = holder.and_then(|peer| state.peers.get(&peer)) {
            self.queue(peer, session_id, tool_call_id, &text);
        }
        self.make_room(&mut state);
        size
    }

    fn queue(
        &self,
        peer: &Arc<Peer>,
        session_id: SessionId,
        tool_call_id: ToolCallId,
        text: &Arc<Accounted>,
    ) {
        let bytes = text.bytes.clone();
        // Weak, since the peer owns the outbox that owns this receipt.
        let (hub, writer, text) = (self.clone(), Arc::downgrade(peer), Arc::clone(text));
        let receipt = Receipt::new(move || {
            // Counted until the writer is done with the bytes.
            drop(text);
            if writer.upgrade().is_some_and(|writer| !writer.terms().acks) {
                hub.set_delivery(
                    &session_id,
                    &tool_call_id,
                    Delivery::Written(Instant::now()),
                );
            }
        });
        peer.outbox.result(bytes, receipt);
    }

    /// Sends a finished call's result once more.
    pub(super) fn send_again(&self, peer: &Arc<Peer>, call: &ToolCall, kept: &Kept) {
        let (session_id, tool_call_id) = (call.session_id.clone(), call.tool_call_id.clone());
        self.queue(peer, session_id, tool_call_id, &kept.text);
    }

    /// Queues every result of a session that its harness may not have.
    pub(super) fn redeliver(&self, state: &mut State, peer: PeerId, id: &SessionId) {
        let Some(peer) = state.peers.get(&peer).cloned() else {
            return;
        };
        if let Some(session) = state.sessions.get_mut(id) {
            session.registry.each_result(|call, kept| {
                if !kept.is_delivered() {
                    self.queue(&peer, id.clone(), call.clone(), &kept.text);
                }
            });
        }
    }

    /// Acts on `tool.result.ack`.
    pub(super) fn acknowledge(&self, peer: PeerId, ack: &ResultAck) {
        let holder = self
            .state()
            .sessions
            .get(&ack.session_id)
            .and_then(|session| session.holder);
        if holder == Some(peer) {
            self.set_delivery(&ack.session_id, &ack.tool_call_id, Delivery::Done);
        }
    }

    fn set_delivery(&self, session_id: &SessionId, tool_call_id: &ToolCallId, delivery: Delivery) {
        let mut state = self.state();
        if let Some(session) = state.sessions.get_mut(session_id)
            && let Some(kept) = session.registry.result_mut(tool_call_id)
        {
            kept.delivery = delivery;
            self.shrink_delivered(session_id, tool_call_id, kept);
        }
    }

    /// Decides about what was written for a v1 harness: what its connection has outlived by a heartbeat has arrived;
    /// where the connection is `lost`, the rest may not have.
    pub(super) fn settle_written(&self, id: &SessionId, session: &mut Session, lost: bool) {
        let heartbeat = self.0.limits.heartbeat;
        session.registry.each_result(|call, kept| {
            if let Delivery::Written(at) = kept.delivery {
                if at.elapsed() >= heartbeat {
                    kept.delivery = Delivery::Done;
                    self.shrink_delivered(id, call, kept);
                } else if lost {
                    kept.delivery = Delivery::Pending;
                }
            }
        });
    }

    fn shrink_delivered(&self, id: &SessionId, call: &ToolCallId, kept: &mut Kept) {
        if kept.is_delivered() && kept.text.bytes.len() > KEPT_AFTER_DELIVERY {
            self.shrink(id, call, kept, "it was large and had been delivered");
        }
    }

    fn shrink(
        &self,
        session_id: &SessionId,
        tool_call_id: &ToolCallId,
        kept: &mut Kept,
        why: &str,
    ) {
        let small = too_large(session_id.clone(), tool_call_id.clone(), why);
        kept.text = Accounted::new(encode_whole(&small), &self.0.kept_bytes);
    }

    /// Gives up kept results once the daemon's memory for them is full: delivered ones first, oldest first.
    ///
    /// Of the delivered ones an eighth more than must be, so that not every result that follows has to look through all.
    fn make_room(&self, state: &mut State) {
        let limit = self.0.limits.result_memory_bytes;
        let kept = || self.0.kept_bytes.load(Ordering::Relaxed);
        for (done, worth, target) in [
            (true, WORTH_GIVING_UP, limit - limit / 8),
            (false, KEPT_AFTER_DELIVERY, limit),
        ] {
            if kept() <= limit {
                return;
            }
            state.sessions.each_mut(|id, session| {
                session.registry.each_result(|call, result| {
                    if result.is_delivered() == done
                        && result.text.bytes.len() > worth
                        && kept() > target
                    {
                        self.shrink(id, call, result, "the memory for results was full");
                    }
                });
            });
        }
    }
}

fn encode_whole(result: &ToolResult) -> Bytes {
    match encode_result(result) {
        Ok(text) => text.into(),
        Err(error) => {
            tracing::error!(%error, "a result could not be encoded");
            Bytes::new()
        }
    }
}

/// Encodes a result within `max` bytes: its longest text is cut, with a note, as far as it must be.
fn encode_to_fit(mut result: ToolResult, max: usize) -> Bytes {
    let mut encoded = encode_whole(&result);
    if encoded.len() <= max {
        return encoded;
    }
    if let Some((at, whole)) = take_longest_text(&mut result) {
        let mut keep = whole.len();
        // The limit is on the encoded form, where a byte takes one to six; each round measures that anew.
        while encoded.len() > max && keep > 0 {
            keep = whole.floor_char_boundary(scale(keep, max, encoded.len()).min(keep - 1));
            let kept = whole.get(..keep).unwrap_or_default();
            put_cut_text(&mut result, at, kept, whole.len(), max);
            encoded = encode_whole(&result);
        }
    }
    if encoded.len() > max {
        let why = "it does not fit into the largest message that this harness takes";
        return encode_whole(&too_large(result.session_id, result.tool_call_id, why));
    }
    encoded
}

/// Takes the longest text out of a result and leaves room for its cut form and the note.
fn take_longest_text(result: &mut ToolResult) -> Option<(usize, String)> {
    let length = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => text.len(),
        ContentBlock::Image { .. } => 0,
    };
    let (at, _) = result
        .content
        .iter()
        .enumerate()
        .max_by_key(|(_, block)| length(block))?;
    let ContentBlock::Text { text } = result.content.get_mut(at)? else {
        return None;
    };
    let whole = std::mem::take(text);
    result.content.push(ContentBlock::text(""));
    Some((at, whole))
}

fn put_cut_text(result: &mut ToolResult, at: usize, kept: &str, whole: usize, max: usize) {
    let note = format!(
        "(the text was cut after {} of {whole} bytes, because this harness takes messages of at most {max} bytes)",
        kept.len()
    );
    if let Some(block) = result.content.get_mut(at) {
        *block = ContentBlock::text(if kept.is_empty() { "(cut)" } else { kept });
    }
    if let Some(block) = result.content.last_mut() {
        *block = ContentBlock::text(note);
    }
}

/// Returns a little less than `keep * max / size`.
fn scale(keep: usize, max: usize, size: usize) -> usize {
    let share = (keep as u128) * (max as u128) * 63 / 64 / (size.max(1) as u128);
    usize::try_from(share).unwrap_or(keep)
}
