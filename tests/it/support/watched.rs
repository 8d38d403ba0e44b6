//! The real binary with its admin port, and its log while it runs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::ChildStderr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::SOON;
use super::binary::{Server, start_scratch, start_server_in};

/// What a process has logged so far.
#[derive(Clone)]
pub struct Log(Arc<Mutex<String>>);

impl Log {
    /// Reads a log from now on.
    pub fn of(stderr: ChildStderr) -> Self {
        let log = Self(Arc::default());
        let lines = log.clone();
        std::thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut line = Vec::new();
            while stderr
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                let text = String::from_utf8_lossy(&line);
                lines.0.lock().unwrap().push_str(&text);
                line.clear();
            }
        });
        log
    }

    /// All of it.
    pub fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    /// Waits for a line that holds a text.
    #[track_caller]
    pub fn expect_line(&self, part: &str) -> String {
        let until = Instant::now() + SOON;
        loop {
            let text = self.text();
            if let Some(line) = text.lines().find(|line| line.contains(part)) {
                return line.to_owned();
            }
            assert!(Instant::now() < until, "no line holds {part:?}: {text}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Waits for the line that names the admin port.
    #[track_caller]
    pub fn expect_admin(&self) -> SocketAddr {
        let line = self.expect_line("the admin port answers");
        let (_, rest) = line.split_once("127.0.0.1:").expect("it names the address");
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()))
    }
}

/// A running `serve` with its admin port.
pub struct Watched {
    /// The server.
    pub server: Server,
    /// Its log.
    pub log: Log,
    /// Where its admin port is.
    pub admin: SocketAddr,
}

/// Starts `serve` without a key and with an admin port.
pub fn start_watched(arguments: &[&str]) -> Watched {
    let arguments = [&["--no-key", "--admin-listen", "127.0.0.1:0"], arguments].concat();
    let mut server = start_server_in(start_scratch(), &arguments);
    let log = server.take_log();
    let admin = log.expect_admin();
    Watched { server, log, admin }
}

/// Sends bytes and returns what comes back until the other side closes.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Gets a page; returns the status and the body.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = exchange(
        address,
        format!("GET {path} HTTP/1.1\r\nHost: it\r\n\r\n").as_bytes(),
    );
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{path}: {answer:?}"));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// Waits until a page answers with a status; returns its body.
#[track_caller]
pub fn expect_page(address: SocketAddr, path: &str, status: u16, part: &str) -> String {
    let until = Instant::now() + SOON;
    loop {
        let (now, body) = get(address, path);
        if now == status && body.contains(part) {
            return body;
        }
        assert!(
            Instant::now() < until,
            "{path} answers {now}: {body}, not {status} with {part:?}"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
