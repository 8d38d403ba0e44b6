//! The end of a schedule: a good line on which everything must come right.

use std::time::Duration;

use super::harness::Fault;
use super::schedule::{OTHER, SESSIONS, Schedule};

impl Schedule<'_> {
    /// Gives the harness a good line, and checks what must be true at the end.
    pub(super) async fn finish(&mut self) -> Result<(), Fault> {
        for connection in &mut self.harness.model.connections {
            connection.socket = None;
            connection.line.cut(true);
        }
        self.wait(Duration::from_millis(100)).await?;
        let last = self.connect(1 << 20);
        let open: Vec<usize> = (0..SESSIONS)
            .filter(|at| !self.harness.model.sessions[*at].closed)
            .collect();
        for session in &open {
            self.harness.send_open(last, *session);
            self.wait(Duration::from_millis(10)).await?;
            if !self.harness.model.connections[last].holds.contains(session) {
                self.harness.send_open(last, *session);
            }
        }
        // Every call has ended by then.
        self.wait(Duration::from_secs(5)).await?;
        self.check_nothing_is_lost(&open)?;
        for call in 0..self.harness.model.calls.len() {
            if !open.contains(&self.harness.model.calls[call].session) {
                continue;
            }
            // Where there was no answer there must be one now; where there was one, the same must come again.
            let before = self.harness.model.connections[last]
                .answers
                .get(&call)
                .copied();
            for round in 0.. {
                self.harness.send_call(last, call);
                self.wait(Duration::from_millis(5_000 - 4_900 * u64::from(round == 0)))
                    .await?;
                if self.harness.model.connections[last]
                    .answers
                    .get(&call)
                    .copied()
                    != before
                {
                    break;
                }
                if round > 1 {
                    return Err(format!(
                        "{} is not answered",
                        self.harness.model.calls[call].work.key
                    ));
                }
            }
        }
        self.check_executions()
    }

    /// What was run has been answered, though nobody asked again.
    fn check_nothing_is_lost(&self, open: &[usize]) -> Result<(), Fault> {
        let model = &self.harness.model;
        for (at, call) in model.calls.iter().enumerate() {
            if model.execution(at).starts > 0
                && call.answer.is_none()
                && open.contains(&call.session)
            {
                return Err(format!("the answer of {} is lost", call.work.key));
            }
        }
        Ok(())
    }

    fn check_executions(&self) -> Result<(), Fault> {
        for (key, execution) in &*self.harness.model.ledger.lock().unwrap() {
            if execution.starts > 1 {
                return Err(format!("{key} was run {} times", execution.starts));
            }
            if key.ends_with(OTHER) {
                return Err(format!("{key} was run under the id of another call"));
            }
        }
        Ok(())
    }
}
