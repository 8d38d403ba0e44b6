//! A file read block by block, with a look at the stop signal before each.

use std::io::IoSliceMut;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::ReadError;
use super::window::char_boundary;
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
    /// Grows to the largest block and is filled again and again: fresh memory costs as much as reading into it.
    buffer: Vec<u8>,
    /// What of it was read: the block, and after it the begin of a character that ends in the next one.
    filled: usize,
    block: usize,
    /// Whether the end was met: a read of nothing.
    at_end: bool,
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
            filled: 0,
            block: 0,
            at_end: false,
        }
    }

    /// Returns the current block. A character of UTF-8 stands in one block as a whole.
    pub(super) fn block(&self) -> &[u8] {
        self.buffer.get(..self.block).unwrap_or_default()
    }

    /// Goes on to the next block; returns its size, nothing at the end of the file.
    pub(super) fn advance(&mut self) -> Result<usize, BlockError> {
        if let Some(cause) = self.stop.cause() {
            return Err(BlockError::Stopped(cause));
        }
        // One that grows while it is read has no end that could be waited for here.
        if self.patience == Patience::None && self.at > self.opened.len {
            return Err(BlockError::WouldWait);
        }
        self.buffer.copy_within(self.block..self.filled, 0);
        let begun = self.filled - self.block;
        let room = begun + self.wanted();
        if self.buffer.len() < room {
            // The next block may begin with what is left of a character.
            self.buffer.resize(room + 3, 0);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.fill(buffer.get_mut(begun..room).unwrap_or_default());
        self.buffer = buffer;
        self.filled = begun + read?;
        let read = self.buffer.get(..self.filled).unwrap_or_default();
        self.block = char_boundary(read, self.filled);
        if self.filled < room || self.block == 0 {
            // What the file ends with is its last block, whatever it is.
            self.block = self.filled;
        }
        Ok(self.block)
    }

    /// Reads on to the end; nothing where all of it together has more than `max` bytes.
    pub(super) fn whole(&mut self, max: usize) -> Result<Option<Vec<u8>>, BlockError> {
        let mut whole = self.block().to_vec();
        while whole.len() <= max {
            if self.advance()? == 0 {
                return Ok(Some(whole));
            }
            whole.extend_from_slice(self.block());
        }
        Ok(None)
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
        while let Some(rest) = room
            .get_mut(filled..)
            .filter(|rest| !rest.is_empty() && !self.at_end)
        {
            match preadv2(
                &self.opened.file,
                &mut [IoSliceMut::new(rest)],
                self.at,
                flags,
            ) {
                Ok(0) => self.at_end = true,
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
