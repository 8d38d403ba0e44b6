//! `read`: small, middle and large files. `edit`: one place at the end of a large file, and very many.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::raw::{PIECE, Raw};
use crate::server::Server;
use crate::table::{Table, median_ms};

const LINE: &str =
    "a line of a file of source code, about eighty bytes long, as most of them are\n";

pub(crate) fn measure(table: &mut Table) {
    let server = Server::start();
    let file = server.workspace().join("file");
    let mut driver = server.connect();
    for (what, bytes, times, goal) in [
        ("read 4 KiB, p50", 4 << 10, 1_000, 0.10),
        ("read 1 MiB, p50", 1 << 20, 100, 0.8),
    ] {
        put_lines(&file, bytes);
        let mut taken = Vec::new();
        for _ in 0..times {
            taken.push(
                driver
                    .call("read", json!({"path": "file", "limit": 1_000_000}))
                    .1,
            );
        }
        table.at_most(what, None, median_ms(&mut taken), goal, "ms");
    }
    large(table, &server, 1 << 20, "read 1 MiB, to its last byte, p50");
    large(
        table,
        &server,
        16 << 20,
        "read 16 MiB, to its last byte, p50",
    );
    edits(table, &server);
}

fn put_lines(file: &Path, bytes: usize) {
    std::fs::write(file, LINE.repeat(bytes / LINE.len())).unwrap();
}

/// Both ends only count what comes; the two take turns, so that both meet the same load.
fn large(table: &mut Table, server: &Server, bytes: usize, what: &str) {
    let file = server.workspace().join("file");
    put_lines(&file, bytes);
    let mut raw = Raw::connect(server.url());
    let mut message = Vec::new();
    raw.read("file", Some(&mut message));
    raw.acknowledge();
    let message: Value = serde_json::from_slice(&message).unwrap();
    let text = message["params"]["content"][0]["text"].as_str().unwrap();
    assert!(text.as_bytes() == std::fs::read(&file).unwrap());
    let mut floor = Floor::start(file);
    let (mut floors, mut values) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        floors.push(floor.measure());
        let begun = Instant::now();
        assert!(raw.read("file", None) > bytes);
        values.push(begun.elapsed());
        raw.acknowledge();
    }
    let floor = median_ms(&mut floors);
    table.at_most(what, Some(floor), median_ms(&mut values), 1.5 * floor, "ms");
}

/// A file sent over a plain socket whenever a byte asks for it.
struct Floor {
    stream: TcpStream,
    bytes: usize,
}

impl Floor {
    fn start(file: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            while peer.read(&mut [0]).is_ok_and(|asked| asked > 0) {
                let content = std::fs::read(&file).unwrap();
                peer.write_all(&content).unwrap();
            }
        });
        Self { stream, bytes }
    }

    fn measure(&mut self) -> Duration {
        let mut piece = vec![0; PIECE];
        let begun = Instant::now();
        self.stream.write_all(b"?").unwrap();
        let mut rest = self.bytes;
        while rest > 0 {
            rest -= self.stream.read(&mut piece).unwrap();
        }
        begun.elapsed()
    }
}

fn edits(table: &mut Table, server: &Server) {
    let file = server.workspace().join("file");
    let mut driver = server.connect();
    let unique = LINE.repeat((50 << 20) / LINE.len()) + "the last of all lines\n";
    let many = format!("needle {}\n", "x".repeat(860)).repeat(60_000);
    for (what, content, old, new) in [
        (
            "edit, a place at the end of 50 MB",
            unique,
            "the last of all",
            "the very end of",
        ),
        (
            "edit, 60,000 places in 50 MB",
            many,
            "needle",
            "thread of wool",
        ),
    ] {
        let mut taken = Vec::new();
        for _ in 0..3 {
            std::fs::write(&file, &content).unwrap();
            let input =
                json!({"path": "file", "old_string": old, "new_string": new, "replace_all": true});
            let (result, time) = driver.call("edit", input);
            assert!(!result.is_error, "{result:?}");
            taken.push(time);
        }
        table.at_most(what, None, median_ms(&mut taken), 2_000.0, "ms");
    }
}
