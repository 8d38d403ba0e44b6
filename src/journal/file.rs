//! The file itself: read as far as it is whole, appended to record by record, written anew with what is still worth keeping.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::record::{FRAME_BYTES, Head, MOST_BYTES, Record, first};
use super::replay::{Extent, State};
use crate::limits::Limits;

/// What a journal begins with. Another version of the records gets another number.
const MAGIC: &[u8] = b"bma-executor journal 1\n";

/// Read at one time; more than the longest record, so that one is always seen whole.
const CHUNK_BYTES: usize = 4 * (MOST_BYTES + FRAME_BYTES);

/// Returns where the journal of a state directory is.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("journal")
}

/// Where it is written before it takes its place.
fn new_path(directory: &Path) -> PathBuf {
    directory.join("journal.new")
}

/// What was read of a file.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) state: State,
    /// Where the first thing stands that is no record.
    pub(super) whole: u64,
    /// Whether that is not the end.
    pub(super) damaged: bool,
}

/// Opens the journal of a directory where there is one. What is no plain file is none.
pub(super) fn open_old(directory: &Path) -> io::Result<Option<File>> {
    // Without waiting for a writer, should it be a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path(directory));
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Err(io::Error::other("it is not a plain file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the records of a file up to a place.
pub(super) fn read(file: &File, until: u64, limits: &Limits) -> io::Result<Read> {
    let mut read = Read::default();
    let mut magic = [0; MAGIC.len()];
    let is_ours = until >= MAGIC.len() as u64 && {
        file.read_exact_at(&mut magic, 0)?;
        magic == MAGIC
    };
    if !is_ours {
        read.damaged = until > 0;
        return Ok(read);
    }
    read.whole = MAGIC.len() as u64;
    let mut chunk = vec![0; CHUNK_BYTES];
    while read.whole < until {
        let left = usize::try_from(until - read.whole).unwrap_or(usize::MAX);
        let want = left.min(CHUNK_BYTES);
        let text = chunk.get_mut(..want).unwrap_or_default();
        file.read_exact_at(text, read.whole)?;
        let taken = take_all(text, &mut read, limits);
        if taken == 0 {
            read.damaged = true;
            break;
        }
    }
    Ok(read)
}

/// Applies the records at the head of a text; returns how many bytes they take.
fn take_all(text: &[u8], read: &mut Read, limits: &Limits) -> usize {
    let mut taken = 0;
    while let Head::Whole(record, size) = first(text.get(taken..).unwrap_or_default()) {
        let after = read.whole + size as u64;
        // A result is the last thing in its record.
        let extent = record.result().map(|result| Extent {
            at: after - result.len() as u64,
            length: result.len(),
        });
        read.state.apply(&record, extent, limits);
        read.whole = after;
        taken += size;
    }
    taken
}

/// Reads a result.
pub(super) fn result(file: &File, extent: Extent) -> io::Result<Vec<u8>> {
    let mut result = vec![0; extent.length];
    file.read_exact_at(&mut result, extent.at)?;
    Ok(result)
}

/// Writes a file with what a state holds, beside the journal's place. Results are taken from the file that it was read from.
pub(super) fn write_new(directory: &Path, state: &State, from: Option<&File>) -> io::Result<File> {
    let path = new_path(directory);
    if let Err(error) = std::fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    write_state(&file, state, from).inspect_err(|_| drop_new(directory))?;
    Ok(file)
}

/// Puts what [`write_new`] wrote in the journal's place.
pub(super) fn take_place(directory: &Path) -> io::Result<()> {
    std::fs::rename(new_path(directory), path(directory)).inspect_err(|_| drop_new(directory))
}

/// Removes what will not take the journal's place.
pub(super) fn drop_new(directory: &Path) {
    if let Err(error) = std::fs::remove_file(new_path(directory)) {
        tracing::debug!(%error, "an unfinished journal could not be removed");
    }
}

fn write_state(file: &File, state: &State, from: Option<&File>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, file);
    out.write_all(MAGIC)?;
    let mut frame = Vec::new();
    let mut put = |record: Record<'_>| {
        frame.clear();
        record.frame(&mut frame);
        out.write_all(&frame)
    };
    put(Record::Owner { root: &state.root })?;
    put(Record::Alive { at: state.alive })?;
    for (number, one) in &state.sessions {
        let session = *number;
        put(Record::Opened {
            session,
            id: one.facts.id.as_str(),
            workspace: one.facts.workspace.as_deref(),
            has_env: one.facts.has_env,
        })?;
        for digest in &one.tokens {
            let digest = *digest;
            put(Record::Token { session, digest })?;
        }
        for (call, ended) in one.finished() {
            let result = match (ended.result, from) {
                (Some(extent), Some(from)) => Some(result(from, extent)?),
                _ => None,
            };
            put(Record::Finished {
                session,
                call: call.as_str(),
                digest: ended.digest,
                at: ended.at,
                delivered: ended.delivered,
                result: result.as_deref(),
            })?;
        }
        for (call, (digest, at)) in &one.running {
            put(Record::Started {
                session,
                call: call.as_str(),
                digest: *digest,
                at: *at,
            })?;
        }
    }
    out.flush()
}

/// Copies what stands in a file between two places to the end of another.
pub(super) fn copy(from: &File, begin: u64, end: u64, mut to: &File) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = begin;
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        let part = chunk.get_mut(..left.min(CHUNK_BYTES)).unwrap_or_default();
        from.read_exact_at(part, at)?;
        to.write_all(part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// A file that records are appended to.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) file: File,
    pub(super) length: u64,
    /// Above this it is worth writing anew.
    pub(super) renew_at: u64,
}

impl Appended {
    /// Goes on at the end of a file.
    pub(super) fn new(file: File, limits: &Limits) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length,
            renew_at: 2 * length + limits.journal_slack_bytes,
        })
    }

    /// Appends records by one write. What was written in part is taken back, so that nothing stands before what comes
    /// later that cannot be read.
    pub(super) fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        let failed = match self.file.write(frames) {
            Ok(written) if written == frames.len() => {
                self.length += written as u64;
                return Ok(());
            }
            Ok(_) => io::Error::new(
                io::ErrorKind::StorageFull,
                "only a part of a record could be written; the disk is full, or the file may not grow",
            ),
            Err(error) => error,
        };
        self.file.set_len(self.length)?;
        Err(failed)
    }

    /// Whether the file is still what was written, and still in its place.
    pub(super) fn is_untouched(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|meta| meta.nlink() > 0 && meta.len() == self.length)
    }
}
