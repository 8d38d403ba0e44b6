//! The daemon's way to the service manager that started it, see `sd_notify(3)`.
//!
//! It leads through the guardian. That is the process which the manager knows, and with `NotifyAccess=main` the only one
//! that it listens to: commands run in the same control group as the daemon, and must never be able to speak for it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The variables of a service manager that concern the guardian.
const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_TIME: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// Tells the started daemon that its standard input leads to the manager, and within how many microseconds it has to
/// show that it lives (0: never).
const LINK_VARIABLE: &str = "BMA_EXECUTOR_MANAGER";

/// Longest message passed on; the daemon's own have less than 100 bytes.
const MESSAGE_BYTES: usize = 512;

/// How long a manager that does not read may hold up the guardian, which has signals to hand on.
const SEND_TIME: Duration = Duration::from_millis(500);

fn take(env: &mut Vec<(OsString, OsString)>, name: &str) -> Option<OsString> {
    let at = env
        .iter()
        .position(|(other, _)| other == OsStr::new(name))?;
    Some(env.swap_remove(at).1).filter(|value| !value.is_empty())
}

/// The guardian's part: passes on what the daemon tells.
#[derive(Debug)]
pub(super) struct Relay {
    daemon: UnixDatagram,
    manager: UnixDatagram,
    address: SocketAddr,
}

impl Relay {
    /// Takes what a manager has put into the environment, and returns the relay with the daemon's end of it, to become
    /// its standard input: the one descriptor that can be given to a program without unsafe code.
    ///
    /// # Errors
    /// The manager's address is of no kind that is known, or no socket can be made.
    pub(super) fn take(env: &mut Vec<(OsString, OsString)>) -> io::Result<Option<(Self, OwnedFd)>> {
        let process = take(env, WATCHDOG_PROCESS);
        let time = take(env, WATCHDOG_TIME);
        // Nobody else may claim that the daemon's standard input leads anywhere.
        take(env, LINK_VARIABLE);
        let Some(socket) = take(env, SOCKET) else {
            return Ok(None);
        };
        let address = match socket.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(&socket)?,
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => {
                let what =
                    format!("{SOCKET} must begin with / or @; unset it where no manager waits");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        };
        let own = process.is_none_or(|pid| pid == OsStr::new(&std::process::id().to_string()));
        let time = time.filter(|_| own).unwrap_or_else(|| "0".into());
        env.push((LINK_VARIABLE.into(), time));
        let manager = UnixDatagram::unbound()?;
        manager.set_write_timeout(Some(SEND_TIME))?;
        let (daemon, end) = UnixDatagram::pair()?;
        daemon.set_nonblocking(true)?;
        let relay = Self {
            daemon,
            manager,
            address,
        };
        Ok(Some((relay, end.into())))
    }

    /// Passes messages on for as long as the guardian lives.
    ///
    /// # Errors
    /// The daemon's end cannot be read.
    pub(super) async fn run(self) -> io::Result<()> {
        let daemon = tokio::net::UnixDatagram::from_std(self.daemon)?;
        let mut message = [0; MESSAGE_BYTES];
        loop {
            let length = daemon.recv(&mut message).await?;
            let message = message.get(..length).unwrap_or_default();
            if let Err(error) = self.manager.send_to_addr(message, &self.address) {
                tracing::debug!(%error, "the service manager does not take messages");
            }
        }
    }
}

/// What a service manager is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The daemon serves; also after a reload.
    Ready,
    /// The configuration is being read again; [`Told::Ready`] follows.
    Reloading,
    /// The orderly stop has begun.
    Stopping,
    /// The daemon lives.
    Alive,
}

/// The daemon's end of the way to the service manager; leads nowhere where there is none.
#[derive(Debug)]
pub struct Manager {
    link: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// Takes out of the environment what the guardian has put there.
    ///
    /// # Errors
    /// Standard input, which the variable says to be the way, cannot be used.
    pub fn take(env: &mut Vec<(OsString, OsString)>) -> io::Result<Self> {
        let Some(time) = take(env, LINK_VARIABLE) else {
            return Ok(Self {
                link: None,
                watchdog: None,
            });
        };
        let link = UnixDatagram::from(io::stdin().as_fd().try_clone_to_owned()?);
        // A full queue means that the guardian or the manager hangs; the daemon does not wait for them.
        link.set_nonblocking(true)?;
        let time = time.to_str().and_then(|time| time.parse().ok());
        Ok(Self {
            link: Some(link),
            watchdog: time.filter(|time| *time > 0).map(Duration::from_micros),
        })
    }

    /// Returns how often [`Told::Alive`] is to be told: twice in the time after which the manager gives the daemon up, as
    /// `sd_watchdog_enabled(3)` advises. `None` where it does not ask.
    pub fn alive_interval(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Tells the manager something; what cannot be sent is logged.
    pub fn tell(&self, what: Told) {
        let Some(link) = &self.link else { return };
        let message = match what {
            Told::Ready => "READY=1\nSTATUS=Serving".to_owned(),
            // The time lets the manager tell this reload's end from an earlier one's.
            Told::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()),
            Told::Stopping => "STOPPING=1\nSTATUS=Ending the running calls".to_owned(),
            Told::Alive => "WATCHDOG=1".to_owned(),
        };
        if let Err(error) = link.send(message.as_bytes()) {
            tracing::warn!(%error, ?what, "the service manager could not be told");
        }
    }
}

fn monotonic_micros() -> u128 {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default().as_micros()
}
