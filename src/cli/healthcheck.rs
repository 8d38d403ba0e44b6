//! `healthcheck`: asks a running daemon whether it lives, for containers and scripts.
//!
//! With an admin port it asks that. Without one it sends plain HTTP to the listening address: the refusal that comes back
//! (426) was written by the thread that serves harnesses, and asking takes neither the key nor a session.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::host::ConfigArgs;
use super::{Failure, print};
use crate::config::Config;

/// Longest answer that is looked at.
const ANSWER_BYTES: u64 = 4096;

/// What is asked, and of whom.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Ask whether calls can be taken (`/readyz`) instead of whether the daemon lives (`/livez`); needs the admin port
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Asks once. Exit status 0 where the answer is good, 1 where it is not or none comes in time.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let sentence = check(args).map_err(|sentence| Failure { code: 1, sentence })?;
    print::line(sentence)?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Args) -> Result<String, String> {
    let settings = args.config.settings().map_err(|failure| failure.sentence)?;
    let config = Config::new(settings).map_err(|error| error.to_string())?;
    let patience = config.limits.admin_timeout;
    if let Some(admin) = config.admin {
        let path = if args.ready { "/readyz" } else { "/livez" };
        let (status, body) = ask(admin, path, patience)?;
        return if status == 200 {
            Ok(format!("{path} of {admin} answers ok"))
        } else {
            Err(format!(
                "{path} of {admin} answers {status}: {}",
                body.trim()
            ))
        };
    }
    if args.ready {
        return Err(
            "--ready needs the admin port: give --admin-listen as the daemon has it".to_owned(),
        );
    }
    if config.harness_url.is_some() {
        return Err("an executor that dials its harness has no port to ask; give it and this command --admin-listen".to_owned());
    }
    match ask(config.listen, "/", patience)? {
        (426, _) => Ok(format!("an executor answers on {}", config.listen)),
        (status, _) => Err(format!(
            "something else than an executor answers on {}: HTTP status {status}",
            config.listen
        )),
    }
}

/// Whether an executor or its admin port answers on an address.
pub(super) fn answers(address: SocketAddr, config: &Config) -> bool {
    let patience = config.limits.admin_timeout;
    let (path, good) = if config.admin == Some(address) {
        ("/livez", 200)
    } else {
        ("/", 426)
    };
    ask(address, path, patience).is_ok_and(|(status, _)| status == good)
}

/// Makes one request within a time; returns the status and the beginning of the body.
fn ask(address: SocketAddr, path: &str, patience: Duration) -> Result<(u16, String), String> {
    if address.port() == 0 {
        return Err(
            "port 0 stands for any port; give the port that the daemon's log names".to_owned(),
        );
    }
    let address = reachable(address);
    let until = Instant::now() + patience;
    let failed = |error: std::io::Error| {
        let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
        if late {
            let patience = humantime::format_duration(patience);
            return format!("{address} did not answer within {patience}");
        }
        format!("{address} cannot be asked: {error}")
    };
    let mut stream = TcpStream::connect_timeout(&address, patience).map_err(failed)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    while (answer.len() as u64) < ANSWER_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed(ErrorKind::TimedOut.into()));
        }
        stream.set_read_timeout(Some(left)).map_err(failed)?;
        match stream.read(&mut chunk).map_err(failed)? {
            0 => break,
            read => answer.extend_from_slice(chunk.get(..read).unwrap_or_default()),
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .ok_or_else(|| format!("what answers on {address} does not speak HTTP"))?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// Returns where an address that stands for every interface can be reached from this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}
