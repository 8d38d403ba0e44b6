//! The sessions and calls of a daemon that is gone, taken up from its journal (protocol section 7).

use tokio::time::Instant;

use super::answer::Answer;
use super::fit::spell;
use super::kept::{Accounted, Body, Kept};
use super::session::{Lost, Session};
use super::{Hub, State};
use crate::journal::{Recovered, RecoveredSession};
use crate::wire::{Encoded, SessionId, ToolCallId};
use crate::workspace::Workspace;

impl Hub {
    /// Takes up what a journal held: finished calls as they are, and those that ran as ended in a way that nobody knows.
    pub(super) fn restore(&self, recovered: Recovered) {
        let mut state = self.state();
        let now = Instant::now();
        for session in recovered.sessions {
            let id = session.facts.id.clone();
            let (session, calls) = self.restore_session(session, now);
            state.sessions.insert(&id, session);
            for (call, delivered) in calls {
                self.note_finished(&mut state, &id, call.clone());
                if delivered {
                    let State { sessions, ages, .. } = &mut *state;
                    self.note_delivered(sessions, ages, &id, &call);
                }
            }
        }
    }

    /// Makes a session of what is known of it, and names its calls with whether they were delivered.
    fn restore_session(
        &self,
        recovered: RecoveredSession,
        now: Instant,
    ) -> (Session, Vec<(ToolCallId, bool)>) {
        let RecoveredSession {
            facts,
            tokens,
            age,
            interrupted,
            finished,
            journal,
        } = recovered;
        let workspace = self.restore_workspace(&facts.id, facts.workspace.as_deref());
        let lost = Lost {
            env: facts.has_env,
            workspace: workspace.is_none(),
        };
        let workspace = workspace.unwrap_or_else(|| self.0.rooms.workspace.clone());
        let processes = self.0.rooms.processes.session(Vec::new());
        let mut session = Session {
            released: Some(now.checked_sub(age).unwrap_or(now)),
            tokens,
            lost,
            ..Session::new(workspace, processes, journal, &self.0.limits)
        };
        let mut calls = Vec::new();
        for call in finished {
            let body = match call.result {
                Some(bytes) => Body::Whole(Accounted::new(Encoded::Whole(bytes), &self.0.accounts)),
                None => Body::Gone("it was too large to be kept over a restart of the executor"),
            };
            let whole = matches!(body, Body::Whole(_));
            let kept = Kept::new(body, &self.0.accounts);
            let at = now.checked_sub(call.age).unwrap_or(now);
            session.registry.restore(&call.id, call.digest, kept, at);
            if !whole {
                session.registry.give_up(&call.id);
            }
            if call.delivered {
                session.registry.deliver(&call.id);
            }
            calls.push((call.id, call.delivered));
        }
        for (id, digest) in interrupted {
            let answer = Answer::interrupted().into_result(facts.id.clone(), id.clone());
            let message = spell(answer);
            session.journal.finished(&id, &digest, message.whole());
            let body = Body::Whole(Accounted::new(message, &self.0.accounts));
            let kept = Kept::new(body, &self.0.accounts);
            session.registry.restore(&id, digest, kept, now);
            calls.push((id, false));
        }
        (session, calls)
    }

    /// Enters a session's directory again; none where that cannot be done.
    fn restore_workspace(&self, session: &SessionId, path: Option<&str>) -> Option<Workspace> {
        let root = &self.0.rooms.workspace;
        let Some(path) = path else {
            return Some(root.clone());
        };
        root.below(path)
            .inspect_err(|error| tracing::warn!(%session, kind = ?error.kind(), "the directory of a session is gone"))
            .ok()
    }
}
