//! `read`: small, middle and large files, beside the same bytes sent over a plain socket. `edit`: one place at the end
//! of a large file, and very many.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::client::Client;
use crate::peers::Peer;
use crate::plan::Plan;
use crate::sample::{Lane, Turn, in_turns, timed};
use crate::server::Server;
use crate::socket::PIECE;
use crate::table::{Goal, Row, Table};

const LINE: &str =
    "a line of a file of source code, about eighty bytes long, as most of them are\n";

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::start(plan);
    let peers = Peer::found();
    let small = (Turn::Short, plan.pick(2, 300, 1_000));
    let row = read(&server, &peers, 4 << 10, small, "read 4 KiB, p50");
    table.add(row.goal(Goal::AtMost(0.10)));
    let middle = (Turn::Short, plan.pick(2, 50, 200));
    let row = read(&server, &peers, 1 << 20, middle, "read 1 MiB, p50");
    table.add(row.goal(Goal::AtMost(0.8)));
    let large = (Turn::Long, plan.pick(1, 10, 40));
    let row = read(&server, &peers, 16 << 20, large, "read 16 MiB, p50");
    let goal = 1.5 * row.floor.unwrap();
    // It is to be ahead of this one, too.
    let ahead = row.peers.get("sandbox-agent").copied();
    table.add(row.goal(Goal::AtMost(ahead.map_or(goal, |ahead| goal.min(ahead)))));
    edits(plan, table, &server);
}

fn put_lines(file: &Path, bytes: usize) {
    std::fs::write(file, LINE.repeat(bytes / LINE.len())).unwrap();
}

/// Each end only counts what comes, to the last byte.
fn read(
    server: &Server,
    peers: &[Peer],
    bytes: usize,
    (turn, times): (Turn, usize),
    what: &str,
) -> Row {
    let file = server.workspace().join("file");
    put_lines(&file, bytes);
    let mut client = Client::connect(server);
    let mut floor = Floor::start(file.clone());
    let mut links: Vec<_> = peers.iter().map(Peer::connect).collect();
    let input = json!({"path": "file", "limit": 10_000_000});
    let least = file.metadata().unwrap().len();
    let mut lanes: Vec<Lane<'_>> = vec![
        Box::new(|| timed(|| floor.fetch())),
        Box::new(|| {
            let (answer, taken) = client.call("read", &input);
            assert!(answer.bytes as u64 > least);
            taken
        }),
    ];
    for link in &mut links {
        lanes.push(Box::new(|| timed(|| link.read(&file))));
    }
    let p50 = in_turns(turn, times, &mut lanes);
    let names = peers.iter().map(|peer| peer.name);
    Row::new(what, p50[1], "ms")
        .floor(p50[0])
        .peers(names.zip(p50[2..].iter().copied()))
}

/// A file sent over a plain socket whenever a byte asks for it.
struct Floor {
    stream: TcpStream,
    bytes: usize,
    piece: Vec<u8>,
}

impl Floor {
    fn start(file: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            while peer.read(&mut [0]).is_ok_and(|asked| asked > 0) {
                let content = std::fs::read(&file).unwrap();
                peer.write_all(&content).unwrap();
            }
        });
        Self {
            stream,
            bytes,
            piece: vec![0; PIECE],
        }
    }

    fn fetch(&mut self) {
        self.stream.write_all(b"?").unwrap();
        let mut rest = self.bytes;
        while rest > 0 {
            rest -= self.stream.read(&mut self.piece).unwrap();
        }
    }
}

fn edits(plan: &Plan, table: &mut Table, server: &Server) {
    let file = server.workspace().join("file");
    let mut client = Client::connect(server);
    let lines = plan.pick(1_000, 60_000, 60_000);
    let unique = LINE.repeat(868 * lines / LINE.len()) + "the last of all lines\n";
    let many = format!("needle {}\n", "x".repeat(860)).repeat(lines);
    let places = [
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
    ];
    for (what, content, old, new) in places {
        let input =
            json!({"path": "file", "old_string": old, "new_string": new, "replace_all": true});
        let p50 = in_turns(
            Turn::Long,
            plan.pick(1, 1, 3),
            &mut [
                Box::new(|| timed(|| std::fs::write(&file, &content).unwrap())),
                Box::new(|| client.call("edit", &input).1),
            ],
        );
        table.add(
            Row::new(what, p50[1], "ms")
                .floor(p50[0])
                .goal(Goal::AtMost(2_000.0)),
        );
    }
}
