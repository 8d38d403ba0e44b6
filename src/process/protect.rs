//! What the daemon does to itself before it runs anything for others.

use std::io;

use rustix::process::{
    DumpableBehavior, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_child_subreaper,
    set_dumpable_behavior, set_parent_process_death_signal, setsid,
};

/// First descriptor that no command may have.
const FIRST_PRIVATE_DESCRIPTOR: i32 = 3;

/// Keeps commands of the same user away from this process: its `/proc` entries (environment, memory, descriptors)
/// become unreadable to them, and descriptors that it inherited are not passed on.
///
/// To be called by `main` before anything is started. Arguments stay readable for everybody: no secret may be there.
///
/// # Errors
/// Where the kernel refuses.
pub fn protect_self() -> io::Result<()> {
    keep_descriptors();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Gives up the controlling terminal, and asks for TERM when the guardian dies.
///
/// To be called first thing by the daemon that [`super::guard`] started: the leader of a process group cannot do it.
///
/// # Errors
/// Where this process leads a process group.
pub fn detach(guardian: u32) -> io::Result<()> {
    setsid()?;
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The guardian may have died before the signal was asked for.
    if getppid().is_none_or(|parent| u32::try_from(parent.as_raw_nonzero().get()) != Ok(guardian)) {
        return Err(io::Error::other("the guardian is gone"));
    }
    Ok(())
}

/// Passes no descriptor on that this process has inherited; its own are private from the start.
pub(super) fn keep_descriptors() {
    close_fds::set_fds_cloexec_threadsafe(FIRST_PRIVATE_DESCRIPTOR, &[]);
}

/// Makes this process the one that orphaned descendants pass to.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Whether the kernel gives what processes are found and watched by.
#[derive(Debug)]
pub struct Control {
    /// Orphans pass to this process.
    pub subreaper: io::Result<()>,
    /// The end of a process can be watched.
    pub pidfd: io::Result<()>,
}

/// Asks the kernel for both.
pub fn probe_control() -> Control {
    Control {
        subreaper: adopt_orphans(),
        pidfd: pidfd_open(getpid(), PidfdFlags::empty())
            .map(drop)
            .map_err(io::Error::from),
    }
}
