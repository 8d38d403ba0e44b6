//! Other executors found on the path, driven as ours is. One that is missing is a column that is not there.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::machine::find;
use crate::server::first_line;
use crate::socket::{PIECE, Socket};

/// A running peer; it ends with this value.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The name of its column.
    pub(crate) name: &'static str,
    /// Its program.
    pub(crate) program: PathBuf,
    /// From its start until it can be connected to.
    pub(crate) ready_after: Duration,
    address: String,
    child: Child,
    _home: TempDir,
}

/// A connection to a peer.
pub(crate) trait Link: Send {
    /// Runs `bash -c true` to its end.
    fn run_true(&mut self);
    /// Reads a file to its last byte.
    fn read(&mut self, path: &Path);
}

impl Peer {
    /// Starts each that is found.
    pub(crate) fn found() -> Vec<Self> {
        let starts: [fn() -> Option<Self>; 2] = [start_codex, start_sandbox_agent];
        starts.iter().filter_map(|start| start()).collect()
    }

    /// Connects.
    pub(crate) fn connect(&self) -> Box<dyn Link> {
        if self.name == "codex" {
            Box::new(Codex::connect(&self.address))
        } else {
            Box::new(SandboxAgent::connect(&self.address))
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn start_codex() -> Option<Peer> {
    let program = find("codex")?;
    let home = TempDir::new().unwrap();
    let begun = Instant::now();
    let mut child = Command::new(&program)
        .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let line = first_line(&mut child);
    let peer = |address: &str| Peer {
        name: "codex",
        program,
        ready_after: begun.elapsed(),
        address: address.to_owned(),
        child,
        _home: home,
    };
    // A codex without `exec-server` says something else, or nothing.
    line.strip_prefix("ws://").map(peer)
}

fn start_sandbox_agent() -> Option<Peer> {
    let program = find("sandbox-agent")?;
    // It takes no port 0.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let address = free.unwrap();
    let home = TempDir::new().unwrap();
    let begun = Instant::now();
    let child = Command::new(&program)
        .args([
            "server",
            "--no-token",
            "--no-telemetry",
            "--host",
            "127.0.0.1",
        ])
        .args(["--port", &address.port().to_string()])
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut peer = Peer {
        name: "sandbox-agent",
        program,
        ready_after: Duration::ZERO,
        address: address.to_string(),
        child,
        _home: home,
    };
    while begun.elapsed() < Duration::from_secs(10) {
        if TcpStream::connect(address).is_ok() {
            peer.ready_after = begun.elapsed();
            return Some(peer);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// JSON-RPC over a WebSocket.
struct Codex {
    socket: Socket,
    sent: u64,
    message: Vec<u8>,
}

impl Codex {
    fn connect(address: &str) -> Self {
        let mut codex = Self {
            socket: Socket::connect(address, None),
            sent: 0,
            message: Vec::new(),
        };
        codex.ask("initialize", &json!({"clientName": "perf"}));
        codex.expect(r#""result""#);
        let ready = json!({"method": "initialized", "params": {}});
        codex.socket.send(&ready.to_string());
        codex
    }

    fn ask(&mut self, method: &str, params: &Value) {
        self.sent += 1;
        let request = json!({"id": self.sent, "method": method, "params": params});
        self.socket.send(&request.to_string());
    }

    /// Waits for a message that says something; returns its length.
    fn expect(&mut self, what: &str) -> usize {
        loop {
            let bytes = self.socket.receive(&mut self.message, 256);
            let head = String::from_utf8_lossy(&self.message);
            assert!(!head.contains(r#""error""#), "{head}");
            if head.contains(what) {
                return bytes;
            }
        }
    }
}

impl Link for Codex {
    fn run_true(&mut self) {
        let id = format!("p{}", self.sent);
        let start = json!({
            "processId": id, "argv": ["bash", "-c", "true"], "cwd": "file:///",
            "env": {"PATH": "/usr/bin:/bin"}, "tty": false, "pipeStdin": false, "arg0": null,
        });
        self.ask("process/start", &start);
        self.expect(r#""process/exited""#);
    }

    fn read(&mut self, path: &Path) {
        let uri = format!("file://{}", path.display());
        self.ask("fs/readFile", &json!({"path": uri}));
        let bytes = self.expect(r#""result""#) as u64;
        assert!(bytes > path.metadata().unwrap().len());
    }
}

/// HTTP with one connection kept open.
struct SandboxAgent {
    reader: BufReader<TcpStream>,
    address: String,
    piece: Vec<u8>,
}

impl SandboxAgent {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            reader: BufReader::new(stream),
            address: address.to_owned(),
            piece: vec![0; PIECE],
        }
    }

    /// Makes a request and returns the length of the answer's body.
    fn ask(&mut self, request: &str, body: &str) -> usize {
        let text = format!(
            "{request} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.reader.get_mut().write_all(text.as_bytes()).unwrap();
        let (mut length, mut line) = (0, String::new());
        self.reader.read_line(&mut line).unwrap();
        assert!(line.contains("200"), "{line}");
        while line.trim_end() != "" {
            line.clear();
            self.reader.read_line(&mut line).unwrap();
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut rest = length;
        while rest > 0 {
            let room = rest.min(self.piece.len());
            rest -= self.reader.read(&mut self.piece[..room]).unwrap();
        }
        length
    }
}

impl Link for SandboxAgent {
    fn run_true(&mut self) {
        let body = json!({"command": "bash", "args": ["-c", "true"]});
        self.ask("POST /v1/processes/run", &body.to_string());
    }

    fn read(&mut self, path: &Path) {
        let request = format!("GET /v1/fs/file?path={}", path.display());
        let bytes = self.ask(&request, "") as u64;
        assert_eq!(bytes, path.metadata().unwrap().len());
    }
}
