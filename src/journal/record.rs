//! The spelling of one record: a length, a checksum, and what changed.
//!
//! A reader must be able to tell a whole record from a torn or a foreign one at any byte.

use super::Digest;

/// Length and checksum before each record.
pub(super) const FRAME_BYTES: usize = 8;

/// No record is longer: a result within its bound, ids and a path of the longest form take less.
pub(super) const MOST_BYTES: usize = 256 * 1024;

/// What a record takes beside its result.
const USUAL_BYTES: usize = 128;

/// A change of state. Sessions are named by numbers that are never used again, so that a late record of a closed one
/// does not fall to another of the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The workspace that the rest belongs to; comes first.
    Owner { root: &'a [u8] },
    /// The daemon lived at this time, in milliseconds since the epoch, as all times.
    Alive { at: u64 },
    /// A session was opened.
    Opened {
        session: u64,
        id: &'a str,
        workspace: Option<&'a str>,
        has_env: bool,
    },
    /// A session may be taken up with a token of this digest.
    Token { session: u64, digest: Digest },
    /// A call begins.
    Started {
        session: u64,
        call: &'a str,
        digest: Digest,
        at: u64,
    },
    /// A call has ended; `result` is none where it is too large to be kept.
    Finished {
        session: u64,
        call: &'a str,
        digest: Digest,
        at: u64,
        delivered: bool,
        result: Option<&'a [u8]>,
    },
    /// The harness has the result.
    Delivered { session: u64, call: &'a str },
    /// A session has ended.
    Closed { session: u64 },
}

impl<'a> Record<'a> {
    /// Returns the result that the record holds.
    pub(super) fn result(&self) -> Option<&'a [u8]> {
        if let Self::Finished { result, .. } = self {
            return *result;
        }
        None
    }

    /// Appends the record with its frame.
    pub(super) fn frame(&self, out: &mut Vec<u8>) {
        let start = out.len();
        // Grown by each part, it would be copied three times.
        out.reserve(FRAME_BYTES + USUAL_BYTES + self.result().map_or(0, <[u8]>::len));
        out.extend([0; FRAME_BYTES]);
        self.spell(out);
        let payload = out.get(start + FRAME_BYTES..).unwrap_or_default();
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let head = head(length, payload);
        if let Some(place) = out.get_mut(start..start + FRAME_BYTES) {
            place.copy_from_slice(&head);
        }
    }

    fn spell(&self, out: &mut Vec<u8>) {
        match self {
            Self::Owner { root } => {
                out.push(1);
                bytes(out, root);
            }
            Self::Alive { at } => {
                out.push(2);
                number(out, *at);
            }
            Self::Opened {
                session,
                id,
                workspace,
                has_env,
            } => {
                out.push(3);
                number(out, *session);
                bytes(out, id.as_bytes());
                out.push(u8::from(*has_env));
                out.push(u8::from(workspace.is_some()));
                bytes(out, workspace.unwrap_or_default().as_bytes());
            }
            Self::Token { session, digest } => {
                out.push(4);
                number(out, *session);
                out.extend(digest);
            }
            Self::Started {
                session,
                call,
                digest,
                at,
            } => {
                out.push(5);
                number(out, *session);
                bytes(out, call.as_bytes());
                out.extend(digest);
                number(out, *at);
            }
            Self::Finished {
                session,
                call,
                digest,
                at,
                delivered,
                result,
            } => {
                out.push(6);
                number(out, *session);
                bytes(out, call.as_bytes());
                out.extend(digest);
                number(out, *at);
                out.push(u8::from(*delivered));
                out.push(u8::from(result.is_some()));
                bytes(out, result.unwrap_or_default());
            }
            Self::Delivered { session, call } => {
                out.push(7);
                number(out, *session);
                bytes(out, call.as_bytes());
            }
            Self::Closed { session } => {
                out.push(8);
                number(out, *session);
            }
        }
    }

    /// Types a record without its frame; none where it is none of this version.
    fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut rest = Rest(payload);
        let record = match rest.byte()? {
            1 => Self::Owner {
                root: rest.bytes()?,
            },
            2 => Self::Alive { at: rest.number()? },
            3 => {
                let (session, id) = (rest.number()?, rest.text()?);
                let (has_env, elsewhere) = (rest.flag()?, rest.flag()?);
                let workspace = rest.text()?;
                Self::Opened {
                    session,
                    id,
                    workspace: elsewhere.then_some(workspace),
                    has_env,
                }
            }
            4 => Self::Token {
                session: rest.number()?,
                digest: rest.digest()?,
            },
            5 => Self::Started {
                session: rest.number()?,
                call: rest.text()?,
                digest: rest.digest()?,
                at: rest.number()?,
            },
            6 => {
                let (session, call, digest) = (rest.number()?, rest.text()?, rest.digest()?);
                let (at, delivered, kept) = (rest.number()?, rest.flag()?, rest.flag()?);
                let result = rest.bytes()?;
                Self::Finished {
                    session,
                    call,
                    digest,
                    at,
                    delivered,
                    result: kept.then_some(result),
                }
            }
            7 => Self::Delivered {
                session: rest.number()?,
                call: rest.text()?,
            },
            8 => Self::Closed {
                session: rest.number()?,
            },
            _ => return None,
        };
        rest.0.is_empty().then_some(record)
    }
}

/// What stands at the head of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head<'a> {
    /// A record, and how many bytes it takes with its frame.
    Whole(Record<'a>, usize),
    /// The beginning of one, perhaps.
    Short,
    /// Nothing that can be read.
    Damaged,
}

/// Takes the first record of a text.
pub(super) fn first(text: &[u8]) -> Head<'_> {
    let (Some(length), Some(sum)) = (word(text, 0), word(text, 4)) else {
        return Head::Short;
    };
    let size = length as usize;
    if size > MOST_BYTES {
        return Head::Damaged;
    }
    let Some(payload) = text.get(FRAME_BYTES..FRAME_BYTES + size) else {
        return Head::Short;
    };
    if checksum(length, payload) != sum {
        return Head::Damaged;
    }
    Record::parse(payload).map_or(Head::Damaged, |record| {
        Head::Whole(record, FRAME_BYTES + size)
    })
}

fn head(length: u32, payload: &[u8]) -> [u8; FRAME_BYTES] {
    let mut head = [0; FRAME_BYTES];
    let (length_place, sum_place) = head.split_at_mut(4);
    length_place.copy_from_slice(&length.to_le_bytes());
    sum_place.copy_from_slice(&checksum(length, payload).to_le_bytes());
    head
}

/// The length is part of the sum: a run of zero bytes is no record.
fn checksum(length: u32, payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(b"record");
    sum.update(&length.to_le_bytes());
    sum.update(payload);
    sum.finalize()
}

fn word(text: &[u8], at: usize) -> Option<u32> {
    let bytes = text.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(bytes);
}

/// What of a record has not been taken yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn digest(&mut self) -> Option<Digest> {
        self.take(32)?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = word(self.take(4)?, 0)?;
        self.take(usize::try_from(count).ok()?)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<Record<'static>> {
        let (session, call, digest, at) = (7, "c-1", [3; 32], 1_234_567);
        vec![
            Record::Owner { root: b"/ws\xff" },
            Record::Alive { at },
            Record::Opened {
                session,
                id: "s-é",
                workspace: Some("/ws/sub"),
                has_env: true,
            },
            Record::Token { session, digest },
            Record::Started {
                session,
                call,
                digest,
                at,
            },
            Record::Finished {
                session,
                call,
                digest,
                at,
                delivered: false,
                result: Some(b"{}"),
            },
            Record::Finished {
                session,
                call,
                digest,
                at,
                delivered: true,
                result: None,
            },
            Record::Delivered { session, call },
            Record::Closed { session },
        ]
    }

    #[test]
    fn each_record_is_read_as_it_was_written_and_no_part_of_it_is_taken_for_one() {
        for record in samples() {
            let mut text = Vec::new();
            record.frame(&mut text);
            assert_eq!(first(&text), Head::Whole(record.clone(), text.len()));
            for cut in 0..text.len() {
                assert_eq!(first(&text[..cut]), Head::Short, "{record:?} cut at {cut}");
            }
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 0x40;
                assert!(
                    !matches!(first(&other), Head::Whole(..)),
                    "{record:?} with another byte {at}"
                );
            }
        }
        assert_eq!(first(&[0; 64]), Head::Damaged);
    }

    proptest! {
        #[test]
        fn no_garbage_is_taken_for_a_record(garbage in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(first(&garbage), Head::Whole(..)));
        }
    }
}
