//! A harness end that only counts bytes, so that a large result is measured without the cost of parsing it here.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

/// What the receiving end takes from a socket at one time, here and for the floor.
pub(crate) const PIECE: usize = 256 << 10;

/// A WebSocket of the daemon, past its hello.
pub(crate) struct Raw {
    reader: BufReader<TcpStream>,
    piece: Vec<u8>,
    /// Its own: a call id seen before would be answered from memory.
    session: String,
    calls: usize,
}

impl Raw {
    /// Connects and sends the welcome.
    pub(crate) fn connect(url: &str) -> Self {
        let address = url.strip_prefix("ws://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: bma.executor.v1.1\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let session = format!("raw-{}", stream.local_addr().unwrap().port());
        let mut raw = Self {
            session,
            reader: BufReader::new(stream),
            piece: vec![0; PIECE],
            calls: 0,
        };
        let mut line = String::from("begin");
        while line.trim_end() != "" {
            line.clear();
            raw.reader.read_line(&mut line).unwrap();
        }
        raw.message(None);
        raw.message(None);
        raw.send(
            "harness.welcome",
            &json!({"protocol_version": "bma.executor.v1.1", "max_message_bytes": 64 << 20}),
        );
        raw
    }

    /// Reads a file and counts the bytes of the message that brings it; `keep` gets them too.
    pub(crate) fn read(&mut self, path: &str, keep: Option<&mut Vec<u8>>) -> usize {
        self.calls += 1;
        let id = format!("raw-{}", self.calls);
        let input = json!({"path": path, "limit": 10_000_000});
        let call =
            json!({"session_id": self.session, "tool_call_id": id, "name": "read", "input": input});
        self.send("tool.call", &call);
        if self.calls == 1 {
            // The session's own opening comes first.
            self.message(None);
        }
        self.message(keep)
    }

    /// Says that the last result has come.
    pub(crate) fn acknowledge(&mut self) {
        let id = format!("raw-{}", self.calls);
        self.send(
            "tool.result.ack",
            &json!({"session_id": self.session, "tool_call_id": id}),
        );
    }

    fn send(&mut self, method: &str, params: &Value) {
        let text = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        // A final text frame, masked with zeros.
        let mut frame = vec![0x81, 0xfe];
        frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.reader.get_mut().write_all(&frame).unwrap();
    }

    /// Takes one text message, fragments together, and returns its length.
    fn message(&mut self, mut keep: Option<&mut Vec<u8>>) -> usize {
        let mut total = 0;
        loop {
            let mut head = [0; 2];
            self.reader.read_exact(&mut head).unwrap();
            let mut len = usize::from(head[1] & 0x7f);
            if len >= 126 {
                let mut wide = [0; 8];
                let width = if len == 126 { 2 } else { 8 };
                self.reader.read_exact(&mut wide[8 - width..]).unwrap();
                len = usize::try_from(u64::from_be_bytes(wide)).unwrap();
            }
            let mut rest = len;
            while rest > 0 {
                let room = rest.min(self.piece.len());
                let got = self.reader.read(&mut self.piece[..room]).unwrap();
                assert!(got > 0, "the daemon hung up");
                if let Some(keep) = keep.as_deref_mut() {
                    keep.extend(&self.piece[..got]);
                }
                rest -= got;
            }
            let is_control = head[0] & 0x08 != 0;
            if is_control {
                continue;
            }
            total += len;
            if head[0] & 0x80 != 0 {
                return total;
            }
        }
    }
}
