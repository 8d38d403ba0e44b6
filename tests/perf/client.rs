//! A harness end with as little work of its own as can be: results are counted to their last byte and not parsed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::Server;
use crate::socket::Socket;

/// As much of a message as says what it answers and how.
const HEAD: usize = 4 << 10;

/// The largest message asked for.
const MAX_MESSAGE: usize = 32 << 20;

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// A connection past its welcome.
#[derive(Debug)]
pub(crate) struct Client {
    socket: Socket,
    /// Its own: a session belongs to one connection, and a call id seen before would be answered from memory.
    session: String,
    calls: usize,
    head: Vec<u8>,
    /// Before the first byte of the last message was sent.
    sent_at: Instant,
}

/// A result.
#[derive(Debug)]
pub(crate) struct Answer {
    session: String,
    /// The call that it answers.
    pub(crate) id: String,
    /// The length of the message.
    pub(crate) bytes: usize,
    /// When its last byte had come.
    pub(crate) came_at: Instant,
}

impl Client {
    /// Connects and sends the welcome.
    pub(crate) fn connect(server: &Server) -> Self {
        let mut client = Self {
            socket: Socket::connect(server.address(), Some("bma.executor.v1.1")),
            session: format!("perf-{}", CONNECTIONS.fetch_add(1, Ordering::Relaxed)),
            calls: 0,
            head: Vec::new(),
            sent_at: Instant::now(),
        };
        let welcome =
            json!({"protocol_version": "bma.executor.v1.1", "max_message_bytes": MAX_MESSAGE});
        client.message("harness.welcome", &welcome);
        client
    }

    /// Makes a call; returns its result and the time from before the first byte sent to the last one received.
    pub(crate) fn call(&mut self, name: &str, input: &Value) -> (Answer, Duration) {
        let id = self.send(name, input);
        let begun = self.sent_at;
        let answer = self.answer();
        let taken = answer.came_at - begun;
        assert_eq!(answer.id, id);
        self.acknowledge(&answer);
        (answer, taken)
    }

    /// Sends a call and returns its id.
    pub(crate) fn send(&mut self, name: &str, input: &Value) -> String {
        let session = self.session.clone();
        self.send_in(&session, name, input)
    }

    /// Sends a call in another session.
    pub(crate) fn send_in(&mut self, session: &str, name: &str, input: &Value) -> String {
        self.calls += 1;
        let id = format!("c{}", self.calls);
        let call = json!({"session_id": session, "tool_call_id": id, "name": name, "input": input});
        self.message("tool.call", &call);
        id
    }

    /// Waits for the next result, of whichever call.
    pub(crate) fn answer(&mut self) -> Answer {
        loop {
            let bytes = self.socket.receive(&mut self.head, HEAD);
            let came_at = Instant::now();
            let head = String::from_utf8_lossy(&self.head);
            if !head.contains(r#""method":"tool.result""#) {
                continue;
            }
            assert!(head.contains(r#""is_error":false"#), "{head}");
            let member = |name: &str| {
                let (_, rest) = head.split_once(&format!(r#""{name}":""#)).unwrap();
                rest.split_once('"').unwrap().0.to_owned()
            };
            return Answer {
                session: member("session_id"),
                id: member("tool_call_id"),
                bytes,
                came_at,
            };
        }
    }

    /// Says that a result has come.
    pub(crate) fn acknowledge(&mut self, answer: &Answer) {
        let ids = json!({"session_id": answer.session, "tool_call_id": answer.id});
        self.message("tool.result.ack", &ids);
    }

    fn message(&mut self, method: &str, params: &Value) {
        let text = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        self.sent_at = Instant::now();
        self.socket.send(&text);
    }
}
