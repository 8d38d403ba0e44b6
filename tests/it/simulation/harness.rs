//! The harness of the simulation: sends, takes what has arrived, and holds each frame against the model.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::model::{Model, Sent};
use crate::support::contract::faults;

/// Why a schedule broke the promise.
pub type Fault = String;

/// Codes of a `failed` result that answers one sending and leaves the call as it was.
const NOT_TAKEN: [&str; 4] = [
    "overloaded",
    "session_in_use",
    "session_closed",
    "shutting_down",
];

/// The harness's side of a schedule.
#[derive(Debug)]
pub struct Harness {
    /// What it knows.
    pub model: Model,
    /// What happened, for whoever has to find a fault.
    pub trace: Vec<String>,
    /// Whether the trace is written, which takes long.
    tracing: bool,
    /// Calls whose result has not been acknowledged, with the connection that brought it.
    pub unacked: Vec<(usize, usize)>,
    /// Answers that said that nothing was taken, by call and connection.
    refusals: Vec<(usize, usize)>,
    /// Frames seen; each of a sample is held against the contract.
    frames: usize,
    begun: tokio::time::Instant,
}

/// One of so many frames is held against its schema: that takes longer than all the rest.
const SAMPLE: usize = 29;

impl Harness {
    /// Begins with a model that knows nothing yet.
    pub fn new(model: Model, tracing: bool) -> Self {
        Self {
            model,
            trace: Vec::new(),
            tracing,
            unacked: Vec::new(),
            refusals: Vec::new(),
            frames: 0,
            begun: tokio::time::Instant::now(),
        }
    }

    /// Writes a line of the trace, where one is asked for.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if self.tracing {
            let at = self.begun.elapsed().as_millis();
            self.trace.push(format!("{at:>6} ms  {}", line()));
        }
    }

    /// The connections that the harness still uses.
    pub fn usable(&self) -> Vec<usize> {
        let connections = self.model.connections.iter().enumerate();
        connections
            .filter(|(_, it)| it.socket.is_some())
            .map(|(at, _)| at)
            .collect()
    }

    /// Sends a message. `None` where the connection breaks; it may have arrived all the same.
    pub fn send(&mut self, connection: usize, method: &str, params: &Value) -> Option<Sent> {
        let text = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        self.note(|| format!("{connection} < {method} {params}"));
        let it = &mut self.model.connections[connection];
        let sent = it.socket.as_mut()?.send(Message::text(text));
        if let Err(error) = sent {
            it.socket = None;
            self.note(|| format!("{connection} broke: {error}"));
            return None;
        }
        let offset = self.model.connections[connection].line.sent();
        Some(Sent { connection, offset })
    }

    /// Sends a call, for the first time or again.
    pub fn send_call(&mut self, connection: usize, call: usize) {
        let it = &self.model.calls[call];
        let (session, command) = (it.session, it.work.command());
        let mut params = json!({"session_id": self.model.sessions[session].id, "tool_call_id": it.id,
            "name": "bash", "input": {"command": command}});
        if let Some(deadline) = it.deadline {
            params["deadline_ms"] = deadline.into();
        }
        match it.refused {
            Some("invalid_input") => params["input"] = json!({"command": 5, "key": command}),
            Some(_) => params["permission"] = json!({"decision": "deny"}),
            None => {}
        }
        // A broken sending has no end, so it is taken for one that reached as far as the line did.
        let before = self.model.connections[connection].line.sent();
        let sent = self.send(connection, "tool.call", &params);
        let sent = sent.unwrap_or(Sent {
            connection,
            offset: before + 1,
        });
        self.model.calls[call].sent.push(sent);
        self.note_take(session, sent);
    }

    /// Notes that a call's message may give its connection the session: by itself it does so where nobody holds that.
    pub fn note_take(&mut self, session: usize, sent: Sent) {
        let connections = &self.model.connections;
        let holds = connections[sent.connection].holds.contains(&session);
        // A rival may have taken the session and be gone before anybody hears of it.
        let contested = connections.iter().enumerate().any(|(at, it)| {
            let asked = it.takes.iter().any(|(taken, _)| *taken == session);
            at != sent.connection && asked && (at > sent.connection || it.is_served())
        });
        if !holds || contested {
            self.model.connections[sent.connection]
                .takes
                .push((session, sent));
        }
    }

    /// Asks for a session, with the newest token where there is one.
    pub fn send_open(&mut self, connection: usize, session: usize) {
        let it = &self.model.sessions[session];
        let mut params = json!({"session_id": it.id});
        if let Some(token) = &it.token {
            params["resume_token"] = token.clone().into();
        }
        if let Some(sent) = self.send(connection, "session.open", &params) {
            self.model.connections[connection]
                .takes
                .push((session, sent));
        }
    }

    /// Acknowledges a result on the connection that brought it, and whether the executor must heed that.
    pub fn send_ack(&mut self, call: usize, connection: usize) {
        let model = &self.model;
        let (session, id) = (model.calls[call].session, model.calls[call].id.clone());
        let alone = model
            .connections
            .iter()
            .enumerate()
            .all(|(at, it)| at == connection || !it.is_served());
        let heeded = alone && model.connections[connection].holds.contains(&session);
        let params = json!({"session_id": model.sessions[session].id, "tool_call_id": id});
        let sent = self.send(connection, "tool.result.ack", &params);
        if heeded && self.model.calls[call].ack.is_none() {
            self.model.calls[call].ack = sent;
        }
    }

    /// Takes what has arrived on every connection.
    pub fn pump(&mut self) -> Result<(), Fault> {
        for connection in self.usable() {
            while let Some(text) = self.next(connection) {
                self.take(connection, &text)?;
            }
        }
        Ok(())
    }

    fn next(&mut self, connection: usize) -> Option<String> {
        loop {
            let socket = self.model.connections[connection].socket.as_mut()?;
            match socket.read() {
                Ok(Message::Text(text)) => return Some(text.to_string()),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return None;
                }
                Err(error) => {
                    self.model.connections[connection].socket = None;
                    self.note(|| format!("{connection} ended: {error}"));
                }
            }
        }
    }

    fn take(&mut self, connection: usize, text: &str) -> Result<(), Fault> {
        let frame: Value =
            serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
        let method = frame["method"].as_str().unwrap_or_default();
        self.frames += 1;
        if self.frames % SAMPLE == 1 {
            let faults = faults(method, &frame);
            if !faults.is_empty() {
                return Err(format!(
                    "`{method}` breaks the contract: {faults:?}: {frame}"
                ));
            }
        }
        let params = &frame["params"];
        if method != "executor.hello" && method != "executor.capabilities.update" {
            self.note(|| {
                let mut shown = params.to_string();
                shown.truncate(shown.floor_char_boundary(200));
                format!("{connection} > {method} {shown}")
            });
        }
        match method {
            "tool.result" => self.take_result(connection, params),
            "tool.progress" => self.take_progress(connection, params),
            "session.opened" | "session.closed" => self.take_session(connection, method, params),
            "protocol.error" => self.take_error(connection, params),
            "executor.hello" => self.take_hello(params),
            "executor.capabilities.update" => Ok(()),
            "executor.drain" if !self.model.stops.is_empty() => Ok(()),
            _ => Err(format!("a frame that was not to come: {frame}")),
        }
    }

    fn take_result(&mut self, connection: usize, params: &Value) -> Result<(), Fault> {
        let Some(call) = self.model.find(params) else {
            return Err(format!("an answer to what was never called: {params}"));
        };
        let code = params["error"]["code"].as_str().unwrap_or_default();
        if params["outcome"] == "failed" && NOT_TAKEN.contains(&code) {
            self.refusals.push((call, connection));
            let is_here = |refusal: &&(usize, usize)| **refusal == (call, connection);
            let refused = self.refusals.iter().filter(is_here).count();
            let it = &self.model.calls[call];
            let sent = it.sent.iter().chain(&it.others);
            if refused > sent.filter(|sent| sent.connection == connection).count() {
                return Err(format!("refused more often than sent: {params}"));
            }
            return Ok(());
        }
        let answers = self.model.connections[connection]
            .answers
            .entry(call)
            .or_default();
        *answers += 1;
        let (answers, allowed) = (*answers, self.model.allowed_answers(call, connection));
        if answers > allowed {
            return Err(format!(
                "answer {answers} of at most {allowed} on connection {connection}: {params}"
            ));
        }
        if let Some(fault) = self.model.fault_of(call, params) {
            return Err(format!("{fault}: {params}"));
        }
        self.model.calls[call]
            .answer
            .get_or_insert_with(|| params.clone());
        self.unacked.push((call, connection));
        Ok(())
    }

    fn take_progress(&mut self, connection: usize, params: &Value) -> Result<(), Fault> {
        let Some(call) = self.model.find(params) else {
            return Err(format!("progress of what was never called: {params}"));
        };
        let it = &mut self.model.connections[connection];
        if it.answers.contains_key(&call) {
            return Err(format!("progress after the answer: {params}"));
        }
        let seq = params["seq"].as_u64().unwrap();
        match it.progress.insert(call, seq) {
            Some(before) if before >= seq => Err(format!("progress after {before}: {params}")),
            _ => Ok(()),
        }
    }

    fn take_session(
        &mut self,
        connection: usize,
        method: &str,
        params: &Value,
    ) -> Result<(), Fault> {
        let session = self
            .model
            .sessions
            .iter()
            .position(|session| params["session_id"] == *session.id);
        let session = session.ok_or_else(|| format!("a session that was never named: {params}"))?;
        let it = &mut self.model.connections[connection];
        it.holds.retain(|held| *held != session);
        if method == "session.opened" {
            it.holds.push(session);
            self.model.sessions[session].token = params["resume_token"].as_str().map(str::to_owned);
        } else if params["reason"] == "closed_by_harness" && !self.model.sessions[session].closed {
            return Err(format!("nobody closed it: {params}"));
        }
        Ok(())
    }

    fn take_error(&mut self, connection: usize, params: &Value) -> Result<(), Fault> {
        match params["code"].as_str().unwrap() {
            "duplicate_call_id" => match self.model.find(params) {
                Some(call) if !self.model.calls[call].others.is_empty() => Ok(()),
                _ => Err(format!("no other call was sent under this id: {params}")),
            },
            "session_in_use" => {
                let named =
                    |session: &&mut super::model::Session| params["session_id"] == *session.id;
                if let Some(session) = self.model.sessions.iter_mut().find(named) {
                    // A newer token was lost on its way; without one the session is had once nobody holds it.
                    session.token = None;
                }
                self.model.connections[connection].holds.clear();
                Ok(())
            }
            "session_closed" => Ok(()),
            "shutting_down" if !self.model.stops.is_empty() => Ok(()),
            _ => Err(format!("nothing was wrong: {params}")),
        }
    }

    fn take_hello(&mut self, params: &Value) -> Result<(), Fault> {
        self.note(|| format!("the executor resumes {}", params["resume"]));
        for session in params["resume"].as_array().into_iter().flatten() {
            for id in ["running", "unacked"]
                .into_iter()
                .flat_map(|list| session[list].as_array().unwrap())
            {
                let named = json!({"session_id": session["session_id"], "tool_call_id": id});
                if self.model.find(&named).is_none() {
                    return Err(format!("the hello names what was never called: {named}"));
                }
            }
        }
        Ok(())
    }
}
