//! `bash{true}`: its price over a bare spawn, one after another and side by side.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

use serde_json::json;

use crate::client::Client;
use crate::peers::Peer;
use crate::plan::Plan;
use crate::sample::{Lane, Turn, in_turns, timed};
use crate::server::Server;
use crate::table::{Goal, Row, Table};

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::start(plan);
    let mut client = Client::connect(&server);
    let input = json!({"command": "true"});
    // The first captures the login environment.
    client.call("bash", &input);
    let peers = Peer::found();
    let mut links: Vec<_> = peers.iter().map(Peer::connect).collect();
    let mut least = LeastServer::start();
    let mut lanes: Vec<Lane<'_>> = vec![
        Box::new(|| timed(bare_true)),
        Box::new(|| client.call("bash", &input).1),
        Box::new(|| timed(|| least.run_true())),
    ];
    for link in &mut links {
        lanes.push(Box::new(|| timed(|| link.run_true())));
    }
    let p50 = in_turns(Turn::Short, plan.pick(2, 100, 400), &mut lanes);
    drop(lanes);
    let names = || peers.iter().map(|peer| peer.name);
    table.add(
        Row::new("bash{true}, one after another, p50", p50[1], "ms")
            .floor(p50[0])
            .goal(Goal::AtMost(p50[0] + 0.2))
            .peers(names().zip(p50[3..].iter().copied())),
    );
    table.add(
        Row::new(
            "the same through the least server that there can be",
            p50[2],
            "ms",
        )
        .floor(p50[0]),
    );
    let calls = plan.pick(16, 400, 1_600);
    // Halves in turns: floor, ours, peers, and once more.
    let mut rates = vec![0.0; 2 + peers.len()];
    for _ in 0..2 {
        rates[0] += rate(calls / 2, || in_eight(calls / 2, || bare_true));
        rates[1] += rate(calls / 2, || eight_in_flight(&mut client, calls / 2));
        for (peer, rate_of) in peers.iter().zip(&mut rates[2..]) {
            *rate_of += rate(calls / 2, || {
                in_eight(calls / 2, || {
                    let mut link = peer.connect();
                    move || link.run_true()
                });
            });
        }
    }
    for rate in &mut rates {
        *rate /= 2.0;
    }
    table.add(
        Row::new("bash{true}, 8 in flight", rates[1], "/s")
            .floor(rates[0])
            .goal(Goal::AtLeast(0.85 * rates[0]))
            .peers(names().zip(rates[2..].iter().copied())),
    );
}

fn bare_true() {
    let status = Command::new("/bin/bash").args(["-c", "true"]).status();
    assert!(status.unwrap().success());
}

/// What no server can do without: a byte on a socket, a thread that reads it, another that starts the command with pipes
/// and waits for it, and a byte back. It decodes, bounds, keeps and logs nothing.
struct LeastServer(TcpStream);

impl LeastServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        let (asked, asks) = channel();
        std::thread::spawn(move || {
            let (peer, _) = listener.accept().unwrap();
            peer.set_nodelay(true).unwrap();
            let answer = peer.try_clone().unwrap();
            std::thread::spawn(move || {
                while asks.recv().is_ok() {
                    let mut command = Command::new("/bin/bash");
                    command.args(["-c", "true"]).stdin(Stdio::null());
                    let output = command.output().unwrap();
                    assert!(output.status.success());
                    (&answer).write_all(b"!").unwrap();
                }
            });
            while (&peer).read(&mut [0]).is_ok_and(|read| read > 0) {
                asked.send(()).unwrap();
            }
        });
        Self(stream)
    }

    fn run_true(&mut self) {
        self.0.write_all(b"?").unwrap();
        self.0.read_exact(&mut [0]).unwrap();
    }
}

fn rate(calls: usize, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    calls as f64 / begun.elapsed().as_secs_f64()
}

fn eight_in_flight(client: &mut Client, calls: usize) {
    for sent in 0..calls + 8 {
        if sent >= 8 {
            let answer = client.answer();
            client.acknowledge(&answer);
        }
        if sent < calls {
            client.send("bash", &json!({"command": "true"}));
        }
    }
}

/// Eight loops that share the calls; each makes what it calls first.
fn in_eight<C: FnMut()>(calls: usize, make: impl Fn() -> C + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut call = make();
                (0..calls / 8).for_each(|_| call());
            });
        }
    });
}
