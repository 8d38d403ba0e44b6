//! Reads the ids of a message that is not valid as a whole.
//!
//! A call whose two ids can be read gets its answer as a `tool.result`, whatever else is wrong with it
//! (protocol section 2). This scanner therefore takes what a parser refuses: any depth, any number, a text
//! that breaks off. It never recurses and looks at each byte once.

use super::{SessionId, ToolCallId};

/// What could be read of a broken message.
#[derive(Debug, Default)]
pub(super) struct Salvaged {
    pub(super) method: Member<String>,
    pub(super) session_id: Member<SessionId>,
    pub(super) tool_call_id: Member<ToolCallId>,
}

/// A member: absent, given once in good form, or of no use.
#[derive(Debug, Default)]
pub(super) enum Member<T> {
    #[default]
    Absent,
    Read(T),
    Useless,
}

impl<T> Member<T> {
    /// Takes one more value; a second one makes the member ambiguous.
    fn add(&mut self, value: Option<T>) {
        *self = match (&self, value) {
            (Self::Absent, Some(value)) => Self::Read(value),
            _ => Self::Useless,
        };
    }

    pub(super) fn read(self) -> Option<T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Absent | Self::Useless => None,
        }
    }
}

/// Scans a text for `method` and for the ids inside `params`.
pub(super) fn salvage(text: &str) -> Salvaged {
    let mut found = Salvaged::default();
    let mut scan = Scan::new(text);
    while let Some(member) = scan.next_member() {
        let value = || {
            member
                .text
                .and_then(|raw| serde_json::from_str::<String>(raw).ok())
        };
        match (member.depth, member.name.as_str()) {
            (1, "method") => found.method.add(value()),
            (2, "session_id") if scan.in_params => {
                found
                    .session_id
                    .add(value().and_then(|id| SessionId::new(&id).ok()));
            }
            (2, "tool_call_id") if scan.in_params => {
                found
                    .tool_call_id
                    .add(value().and_then(|id| ToolCallId::new(&id).ok()));
            }
            _ => {}
        }
    }
    found
}

/// Longest raw string that can still be a member name or an id of interest: 128 characters, each escaped as two `\uXXXX`.
const MAX_RAW: usize = 128 * 12 + 2;

struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// Open brackets; only their number and the kinds of the first two matter.
    depth: usize,
    /// Whether the outermost value, and `params`, are objects.
    in_params: bool,
    opens_params: bool,
    expects_name: bool,
}

struct FoundMember<'a> {
    depth: usize,
    name: String,
    /// The raw string that is its value; `None` for any other kind of value.
    text: Option<&'a str>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            in_params: false,
            opens_params: false,
            expects_name: false,
        }
    }

    /// Returns the next member of the outermost object or of `params`.
    fn next_member(&mut self) -> Option<FoundMember<'a>> {
        loop {
            match self.peek()? {
                b'{' => self.open(true),
                b'[' => self.open(false),
                b'}' | b']' => self.close(),
                b',' => {
                    self.at += 1;
                    self.expects_name = self.depth == 1 || (self.depth == 2 && self.in_params);
                }
                b'"' => {
                    let raw = self.string()?;
                    if std::mem::take(&mut self.expects_name)
                        && let Some(member) = self.member(raw)
                    {
                        return Some(member);
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn open(&mut self, object: bool) {
        self.at += 1;
        self.depth += 1;
        if self.depth == 2 {
            self.in_params = object && std::mem::take(&mut self.opens_params);
        }
        self.expects_name = object && (self.depth == 1 || (self.depth == 2 && self.in_params));
    }

    fn close(&mut self) {
        self.at += 1;
        if self.depth == 2 {
            self.in_params = false;
        }
        self.depth = self.depth.saturating_sub(1);
        self.expects_name = false;
    }

    fn member(&mut self, raw: &str) -> Option<FoundMember<'a>> {
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        let name: String = serde_json::from_str(raw).ok()?;
        let depth = self.depth;
        self.opens_params = depth == 1 && name == "params";
        let text = if self.peek() == Some(b'"') {
            self.string()
        } else {
            None
        };
        Some(FoundMember { depth, name, text })
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let blanks = rest
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        self.at += blanks;
        rest.get(blanks).copied()
    }

    /// Steps over the string that begins here and returns it raw, or cut where it is too long to matter.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            self.at += memchr::memchr2(b'"', b'\\', bytes.get(self.at..)?)?;
            if bytes.get(self.at) == Some(&b'"') {
                self.at += 1;
                let end = if self.at - start > MAX_RAW {
                    start
                } else {
                    self.at
                };
                return self.text.get(start..end);
            }
            self.at += 2;
        }
    }
}
