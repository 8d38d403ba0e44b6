//! The steps of a schedule, and how likely each is.

use std::time::Duration;

use serde_json::json;

use super::schedule::{OTHER, Schedule};

impl Schedule<'_> {
    /// Draws a step and takes it.
    pub(super) async fn step(&mut self) {
        let usable = self.harness.usable();
        let Some(connection) = self.random.pick(&usable) else {
            self.connect_random();
            return;
        };
        // After a restart nothing is left of a closed session, so its harness must not name it any more.
        let restarted = !self.harness.model.killed.is_empty();
        let calls: Vec<usize> = (0..self.harness.model.calls.len())
            .filter(|call| {
                let session = self.harness.model.calls[*call].session;
                !restarted || !self.harness.model.sessions[session].closed
            })
            .collect();
        let (call, calls) = (self.random.pick(&calls).unwrap_or(0), calls.len());
        match self.random.below(100) {
            0..30 => {
                let session = self.session_for(connection);
                if !restarted || !self.harness.model.sessions[session].closed {
                    self.call(connection, session);
                }
            }
            30..38 if calls > 0 => self.harness.send_call(connection, call),
            38..40 if calls > 0 => self.send_conflict(connection, call),
            40..47 if calls > 0 => self.cancel(connection, call),
            47..62 if !self.harness.unacked.is_empty() => {
                let at = self.random.below(self.harness.unacked.len());
                self.ack(at);
            }
            62..66 => self.cut(connection),
            66..70 => {
                let (up, bytes) = (self.random.chance(50), self.random.below(6_000) as u64);
                self.harness
                    .note(|| format!("{connection} will be cut after {bytes}, up: {up}"));
                self.harness.model.connections[connection]
                    .line
                    .cut_after(up, bytes);
            }
            70..76 => self.turn_valve(connection),
            76..80 => self.connect_random(),
            80..83 => self.forget(connection),
            83..86 => {
                if let Some(line) = self.random.pick(&self.forgotten) {
                    self.harness
                        .note(|| "what was under way on a forgotten line arrives".to_owned());
                    line.stall(Some(false), None);
                }
            }
            86..91 => {
                let session = self.session_for(connection);
                // An id that was closed is not used again: what it was used for has been forgotten.
                if !self.harness.model.sessions[session].closed {
                    self.harness.send_open(connection, session);
                }
            }
            91 if self.random.chance(30) => self.close_session(connection),
            92..94 => self.daemon.hub.expire_sessions(),
            94..97 => self.restart(),
            97 if self.random.chance(50) => self.stop().await,
            _ => {}
        }
        let pause = self.random.pick(&[0, 0, 0, 1, 5, 50, 400, 2_500]).unwrap();
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// A session that a connection holds, or most often any where it holds none.
    fn session_for(&mut self, connection: usize) -> usize {
        let holds = self.harness.model.connections[connection].holds.clone();
        let any = self.random.below(self.harness.model.sessions.len());
        let held = self.random.pick(&holds).filter(|_| self.random.chance(80));
        held.unwrap_or(any)
    }

    /// Sends another input under the id of a call that is known to have been taken.
    fn send_conflict(&mut self, connection: usize, call: usize) {
        if self.harness.model.execution(call).starts == 0 {
            return;
        }
        let it = &self.harness.model.calls[call];
        let mut work = it.work.clone();
        work.key += OTHER;
        let session = &self.harness.model.sessions[it.session].id;
        let params = json!({"session_id": session, "tool_call_id": it.id, "name": "bash",
            "input": {"command": work.command()}});
        if let Some(sent) = self.harness.send(connection, "tool.call", &params) {
            let it = &mut self.harness.model.calls[call];
            it.others.push(sent);
            let session = it.session;
            self.harness.note_take(session, sent);
        }
    }

    fn cut(&mut self, connection: usize) {
        let lose = self.random.chance(50);
        self.harness
            .note(|| format!("{connection} is cut, what is under way is lost: {lose}"));
        self.harness.model.connections[connection].line.cut(lose);
    }

    fn turn_valve(&mut self, connection: usize) {
        let (up, down) = (self.random.chance(50), self.random.chance(50));
        let line = self.harness.model.connections[connection].line.clone();
        if self.random.chance(50) {
            let delay = Duration::from_millis(self.random.pick(&[0, 3, 100, 900]).unwrap());
            self.harness
                .note(|| format!("{connection} delays by {delay:?}"));
            let mut valve = line.valve();
            valve.to_executor.delay = delay;
            valve.to_harness.delay = delay;
        } else {
            self.harness
                .note(|| format!("{connection} stalls up: {up}, down: {down}"));
            line.stall(Some(up), Some(down));
        }
    }

    /// Leaves a connection behind without a word; what is under way to the executor arrives later, if ever.
    fn forget(&mut self, connection: usize) {
        self.harness.note(|| format!("{connection} is forgotten"));
        let it = &mut self.harness.model.connections[connection];
        it.line.stall(Some(true), Some(true));
        // The socket is kept from ending the line.
        it.socket = None;
        self.forgotten.push(it.line.clone());
    }

    fn close_session(&mut self, connection: usize) {
        let session = self.session_for(connection);
        let it = &mut self.harness.model.sessions[session];
        it.closed = true;
        let params = json!({"session_id": it.id});
        self.harness.send(connection, "session.close", &params);
    }
}
