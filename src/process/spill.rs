//! The whole output of a command, kept in the workspace once it no longer fits the preview.
//!
//! It must never hold up the command for longer than the disk does, follow a link, or fail the call: where
//! the disk is full or not writable, the preview is all there is, and the report says so.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::limits::Limits;
use crate::wire::{OutputPaths, OutputStream};
use crate::workspace::Workspace;

/// Where the outputs lie below the workspace.
const OUTPUTS: [&str; 2] = [".bma", "outputs"];

/// A running spill.
#[derive(Debug)]
pub(super) struct Spill {
    files: Option<Files>,
    job: Option<JoinHandle<Files>>,
    waiting: Vec<(OutputStream, Vec<u8>)>,
    waiting_bytes: usize,
    waiting_max: usize,
}

/// What became of the whole output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpillReport {
    /// The files, relative to the workspace.
    pub(crate) paths: Option<OutputPaths>,
    /// Whether they end at the ceiling.
    pub(crate) capped: bool,
    /// Why they are missing or incomplete.
    pub(crate) failure: Option<String>,
}

#[derive(Debug)]
struct Files {
    workspace: Workspace,
    limits: Arc<Limits>,
    id: String,
    directory: Option<OwnedFd>,
    stdout: Option<File>,
    stderr: Option<File>,
    written: u64,
    capped: bool,
    failure: Option<String>,
}

impl Spill {
    pub(super) fn new(workspace: Workspace, limits: Arc<Limits>) -> Self {
        let random = getrandom::u64().unwrap_or_default();
        let waiting_max = limits.spill_waiting_bytes;
        Self {
            files: Some(Files {
                workspace,
                limits,
                id: format!("{random:016x}"),
                directory: None,
                stdout: None,
                stderr: None,
                written: 0,
                capped: false,
                failure: None,
            }),
            job: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            waiting_max,
        }
    }

    /// Takes output; it is written behind the caller's back.
    pub(super) fn push(&mut self, stream: OutputStream, bytes: Vec<u8>) {
        if bytes.is_empty() || self.files.as_ref().is_some_and(Files::is_done) {
            return;
        }
        self.waiting_bytes += bytes.len();
        self.waiting.push((stream, bytes));
        self.start_job();
    }

    /// Returns whether the command must be throttled.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes >= self.waiting_max
    }

    /// Returns whether something is being written.
    pub(super) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// Waits until the disk has taken what it was given last, and gives it the next.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the job goes on and is looked at again.
    pub(super) async fn progress(&mut self) {
        if let Some(job) = &mut self.job {
            // A job that panicked leaves no files behind; the report tells that the output is not kept.
            self.files = job.await.ok();
            self.job = None;
        }
        self.start_job();
    }

    fn start_job(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(mut files) = self.files.take() {
            let parts = std::mem::take(&mut self.waiting);
            self.waiting_bytes = 0;
            self.job = Some(spawn_blocking(move || {
                for (stream, bytes) in parts {
                    files.take(stream, &bytes);
                }
                files
            }));
        }
    }

    /// Waits for the disk, at most for the grace of blocking jobs, and reports.
    pub(super) async fn finish(mut self, limits: &Limits) -> SpillReport {
        let written = async {
            while self.is_busy() {
                self.progress().await;
            }
        };
        let in_time = tokio::time::timeout(limits.blocking_grace, written).await;
        let Some(files) = self.files.filter(|_| in_time.is_ok()) else {
            return SpillReport {
                paths: None,
                capped: false,
                failure: Some("the disk did not take it in time".to_owned()),
            };
        };
        let path = |file: &Option<File>, end: &str| {
            file.as_ref()
                .map(|_| format!("{}/{}/{}.{end}", OUTPUTS[0], OUTPUTS[1], files.id))
        };
        let paths = OutputPaths {
            stdout: path(&files.stdout, "out"),
            stderr: path(&files.stderr, "err"),
        };
        SpillReport {
            paths: (paths.stdout.is_some() || paths.stderr.is_some()).then_some(paths),
            capped: files.capped,
            failure: files.failure,
        }
    }
}

impl Files {
    fn is_done(&self) -> bool {
        self.capped || self.failure.is_some()
    }

    fn take(&mut self, stream: OutputStream, bytes: &[u8]) {
        if self.is_done() {
            return;
        }
        let room = self.limits.spill_call_bytes - self.written;
        let part = usize::try_from(room)
            .ok()
            .and_then(|room| bytes.get(..room));
        self.capped = part.is_some_and(|part| part.len() < bytes.len());
        let part = part.unwrap_or(bytes);
        match self.file(stream).and_then(|mut file| file.write_all(part)) {
            Ok(()) => self.written += part.len() as u64,
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    fn file(&mut self, stream: OutputStream) -> io::Result<&File> {
        let directory = match self.directory.take() {
            Some(directory) => directory,
            None => open_outputs(&self.workspace, &self.limits)?,
        };
        let directory = self.directory.insert(directory);
        let (place, end) = match stream {
            OutputStream::Stdout => (&mut self.stdout, "out"),
            OutputStream::Stderr => (&mut self.stderr, "err"),
        };
        if place.is_none() {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let name = format!("{}.{end}", self.id);
            let file = openat(&*directory, name, flags, Mode::from_raw_mode(0o600))?;
            *place = Some(file.into());
        }
        place.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Opens `.bma/outputs` below the workspace, made where missing, without following a link, and makes room in it.
fn open_outputs(workspace: &Workspace, limits: &Limits) -> io::Result<OwnedFd> {
    let own = subdirectory(&workspace.directory(), OUTPUTS[0])?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(ignore) = openat(&own, ".gitignore", flags, Mode::from_raw_mode(0o644)) {
        File::from(ignore).write_all(b"*\n")?;
    }
    let outputs = subdirectory(&own, OUTPUTS[1])?;
    make_room(&outputs, limits)?;
    Ok(outputs)
}

fn subdirectory(parent: &impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(parent, name, flags, Mode::empty());
    match open() {
        Err(rustix::io::Errno::NOENT) => {
            match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(open()?)
        }
        other => Ok(other?),
    }
}

/// Removes the oldest outputs until a call at its ceiling fits.
fn make_room(outputs: &OwnedFd, limits: &Limits) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in Dir::read_from(outputs)? {
        let name = entry?.file_name().to_owned();
        if let Ok(stat) = statat(outputs, &name, AtFlags::SYMLINK_NOFOLLOW)
            && rustix::fs::FileType::from_raw_mode(stat.st_mode)
                == rustix::fs::FileType::RegularFile
        {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            kept.push((stat.st_mtime, stat.st_mtime_nsec, name, size));
        }
    }
    kept.sort_unstable();
    let mut sum: u64 = kept.iter().map(|(_, _, _, size)| size).sum();
    for (_, _, name, size) in &kept {
        if sum + limits.spill_call_bytes <= limits.spill_workspace_bytes {
            break;
        }
        unlinkat(outputs, name, AtFlags::empty())?;
        sum -= size;
    }
    Ok(())
}
