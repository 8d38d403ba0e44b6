//! A harness that closes because a message was too large for it (close code 1009, protocol section 7).

use super::Connection;
use super::deliver::give_up;

impl Connection {
    /// Gives up the large results that this connection's harness has not acknowledged: sent again as they are, they
    /// would end every further connection. To be called before [`Connection::release`].
    pub fn give_up_large(&self) {
        let hub = &self.hub;
        let largest = hub.0.limits.default_outbound_bytes;
        let mut state = hub.state();
        for id in state.sessions.ids() {
            let held = state.sessions.get_mut(&id);
            let Some(session) = held.filter(|session| session.holder == Some(self.id)) else {
                continue;
            };
            for call in session.registry.waiting_ids() {
                let kept = session.registry.result(&call);
                let text = kept.and_then(|kept| kept.whole());
                if text.is_some_and(|text| text.size() > largest) {
                    let why =
                        "the harness closed the connection, since a message was too large for it";
                    give_up(session, &id, &call, why);
                }
            }
        }
    }
}
