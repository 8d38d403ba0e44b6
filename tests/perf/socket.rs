//! The client end of a WebSocket that blocks and only counts, so that what is measured is the other end's work.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// What a receiving end takes from a socket at one time, here and for the floors.
pub(crate) const PIECE: usize = 256 << 10;

/// An open WebSocket.
#[derive(Debug)]
pub(crate) struct Socket {
    reader: BufReader<TcpStream>,
    piece: Vec<u8>,
}

impl Socket {
    /// Connects to `ADDRESS:PORT`.
    pub(crate) fn connect(address: &str, protocol: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let protocol = protocol.map_or(String::new(), |protocol| {
            format!("Sec-WebSocket-Protocol: {protocol}\r\n")
        });
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::from("begin");
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Self {
            reader,
            piece: vec![0; PIECE],
        }
    }

    /// Sends a text message.
    pub(crate) fn send(&mut self, text: &str) {
        self.frame(0x1, text.as_bytes());
    }

    /// A final frame, masked with zeros.
    fn frame(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        match u16::try_from(payload.len()) {
            Ok(len) if len < 126 => frame.push(0x80 | u8::try_from(len).unwrap()),
            Ok(len) => {
                frame.push(0xfe);
                frame.extend(len.to_be_bytes());
            }
            Err(_) => {
                frame.push(0xff);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.reader.get_mut().write_all(&frame).unwrap();
    }

    /// Takes one message, fragments together; keeps its first `most` bytes and returns its length.
    pub(crate) fn receive(&mut self, kept: &mut Vec<u8>, most: usize) -> usize {
        kept.clear();
        let mut total = 0;
        loop {
            let mut head = [0; 2];
            self.reader.read_exact(&mut head).unwrap();
            let len = self.length(head[1]);
            if head[0] & 0x08 != 0 {
                self.control(head[0] & 0x0f, len);
                continue;
            }
            let mut rest = len;
            while rest > 0 {
                let room = rest.min(self.piece.len());
                let got = self.reader.read(&mut self.piece[..room]).unwrap();
                assert!(got > 0, "the other end hung up");
                let wanted = got.min(most - kept.len());
                kept.extend(&self.piece[..wanted]);
                rest -= got;
            }
            total += len;
            if head[0] & 0x80 != 0 {
                return total;
            }
        }
    }

    fn length(&mut self, short: u8) -> usize {
        let width = match short & 0x7f {
            126 => 2,
            127 => 8,
            len => return usize::from(len),
        };
        let mut wide = [0; 8];
        self.reader.read_exact(&mut wide[8 - width..]).unwrap();
        usize::try_from(u64::from_be_bytes(wide)).unwrap()
    }

    fn control(&mut self, opcode: u8, len: usize) {
        let mut payload = vec![0; len];
        self.reader.read_exact(&mut payload).unwrap();
        match opcode {
            0x9 => self.frame(0xa, &payload),
            0x8 => panic!(
                "the other end closes: {}",
                String::from_utf8_lossy(&payload)
            ),
            _ => {}
        }
    }
}
