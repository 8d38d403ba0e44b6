//! A file read block by block, with a look at the stop signal before each.

use std::io::IoSliceMut;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::ReadError;
use crate::stop::{Stop, StopCause};
use crate::workspace::OpenedFile;

/// Bytes read between two looks at the stop signal.
pub(super) const BLOCK: usize = 64 * 1024;

/// How long a read may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as it takes.
    Any,
    /// Not at all: what is not in memory is an error.
    None,
}

/// Reads a file block by block.
pub(super) struct BlockReader<'a> {
    opened: &'a OpenedFile,
    stop: &'a Stop,
    patience: Patience,
    at: u64,
    buffer: Vec<u8>,
}

/// Why a block could not be read.
#[derive(Debug)]
pub(super) enum BlockError {
    /// The kernel said so.
    System(Errno),
    /// The stop signal came.
    Stopped(StopCause),
    /// It is not in memory.
    WouldWait,
}

impl BlockError {
    /// Says which file this is about.
    pub(super) fn about(self, path: &str) -> ReadError {
        match self {
            Self::System(errno) => {
                let error = std::io::Error::from(errno);
                ReadError::Sentence(format!("cannot read `{path}`: {error}"))
            }
            Self::Stopped(cause) => ReadError::Stopped(cause),
            Self::WouldWait => ReadError::WouldWait,
        }
    }
}

impl<'a> BlockReader<'a> {
    /// Makes a reader that stands at the beginning.
    pub(super) fn new(opened: &'a OpenedFile, stop: &'a Stop, patience: Patience) -> Self {
        Self {
            opened,
            stop,
            patience,
            at: 0,
            buffer: Vec::new(),
        }
    }

    /// Returns the next block; an empty one at the end of the file.
    pub(super) fn block(&mut self) -> Result<&[u8], BlockError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let appended = self.append(&mut buffer);
        self.buffer = buffer;
        appended.map(|_| self.buffer.as_slice())
    }

    /// Appends the next block; returns its size, nothing at the end of the file.
    pub(super) fn append(&mut self, out: &mut Vec<u8>) -> Result<usize, BlockError> {
        if let Some(cause) = self.stop.cause() {
            return Err(BlockError::Stopped(cause));
        }
        let start = out.len();
        out.resize(start + self.wanted(), 0);
        let filled = self.fill(out.get_mut(start..).unwrap_or_default());
        out.truncate(start + filled.as_ref().map_or(0, |filled| *filled));
        filled
    }

    /// Returns how much to ask for: one byte more than the file is said to have left, since only a read of nothing is
    /// its end; and more of one that has grown, or whose size says nothing.
    fn wanted(&self) -> usize {
        let len = self.opened.len;
        if len == 0 || self.at > len {
            return BLOCK;
        }
        usize::try_from(len - self.at).map_or(BLOCK, |left| left.saturating_add(1).min(BLOCK))
    }

    fn fill(&mut self, room: &mut [u8]) -> Result<usize, BlockError> {
        let flags = match self.patience {
            Patience::Any => ReadWriteFlags::empty(),
            Patience::None => ReadWriteFlags::NOWAIT,
        };
        let mut filled = 0;
        while let Some(rest) = room.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match preadv2(
                &self.opened.file,
                &mut [IoSliceMut::new(rest)],
                self.at,
                flags,
            ) {
                Ok(0) => break,
                Ok(read) => {
                    filled += read;
                    self.at += read as u64;
                }
                Err(Errno::INTR) => {}
                // Not in memory, or a file system that cannot tell.
                Err(Errno::AGAIN | Errno::OPNOTSUPP) if self.patience == Patience::None => {
                    return Err(BlockError::WouldWait);
                }
                Err(errno) => return Err(BlockError::System(errno)),
            }
        }
        Ok(filled)
    }
}

/// Reads on to the end; nothing where the whole has more than `max` bytes.
pub(super) fn rest(
    reader: &mut BlockReader<'_>,
    head: &[u8],
    max: usize,
) -> Result<Option<Vec<u8>>, BlockError> {
    let mut whole = head.to_vec();
    loop {
        if whole.len() > max {
            return Ok(None);
        }
        if reader.append(&mut whole)? == 0 {
            return Ok(Some(whole));
        }
    }
}
