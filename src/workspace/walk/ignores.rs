//! What ignore files leave out of a search.
//!
//! Rules are read through directory handles, from inside the workspace only: a user's own ignore file, or one above
//! the workspace, would make the same search differ between machines. A rule never hides what the caller spelled out.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat, openat2};

/// Names of ignore files; in one directory a later one overrides an earlier one.
pub(super) const FILES: [&CStr; 3] = [c".gitignore", c".ignore", c".rgignore"];

/// The rules of one directory, and those above it.
#[derive(Debug)]
pub(crate) struct Rules {
    here: Gitignore,
    /// Length of the directory's path with its slash: what is cut off a path to judge it here.
    prefix: usize,
    above: Option<Arc<Self>>,
}

impl Rules {
    /// Whether an entry is ignored; the innermost rule that speaks of it decides, as in git.
    pub(super) fn ignore(rules: Option<&Arc<Self>>, path: &[u8], is_dir: bool) -> bool {
        let mut next = rules;
        while let Some(level) = next {
            let below = path.get(level.prefix..).unwrap_or_default();
            match level
                .here
                .matched(Path::new(OsStr::from_bytes(below)), is_dir)
            {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = level.above.as_ref(),
            }
        }
        false
    }

    /// Adds the rules that stand in `dir`, whose path with its slash has `prefix` bytes.
    pub(super) fn enter(
        above: Option<Arc<Self>>,
        dir: BorrowedFd<'_>,
        prefix: usize,
        max_bytes: u64,
    ) -> Option<Arc<Self>> {
        let mut builder = GitignoreBuilder::new("");
        let mut found = false;
        if prefix == 0 {
            found |= open_exclude(dir).is_some_and(|file| add(&mut builder, file, max_bytes));
        }
        for name in FILES {
            let file = openat(dir, name, FLAGS, Mode::empty()).ok();
            found |= file.is_some_and(|file| add(&mut builder, file, max_bytes));
        }
        match builder.build() {
            Ok(here) if found && !here.is_empty() => Some(Arc::new(Self {
                here,
                prefix,
                above,
            })),
            _ => above,
        }
    }

    /// Returns the rules that hold inside the directory at `path`, which the caller spelled out.
    ///
    /// Where one of its components is ignored, or everything inside is, the rules that say so and all above them are
    /// switched off: they speak of a place that nobody asked for.
    pub(super) fn for_base(
        root: BorrowedFd<'_>,
        base: BorrowedFd<'_>,
        path: &[u8],
        max_bytes: u64,
    ) -> Option<Arc<Self>> {
        let mut rules = Self::enter(None, root, 0, max_bytes);
        if path.is_empty() {
            return rules;
        }
        let mut dir: Option<OwnedFd> = None;
        let mut end = 0;
        for component in path.split(|&byte| byte == b'/') {
            end += component.len();
            let so_far = path.get(..end).unwrap_or(path);
            if Self::ignore(rules.as_ref(), so_far, true) || ignores_all(rules.as_ref(), so_far) {
                rules = None;
            }
            end += 1;
            let inner = if so_far == path {
                None
            } else {
                // Below a link that the caller went through, only the base itself is known for sure.
                let from = dir.as_ref().map_or(root, AsFd::as_fd);
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match openat(from, component, flags, Mode::empty()) {
                    Ok(inner) => Some(inner),
                    Err(_) => return Self::enter(None, base, path.len() + 1, max_bytes),
                }
            };
            let here = inner.as_ref().map_or(base, AsFd::as_fd);
            let with_own = Self::enter(rules.clone(), here, end, max_bytes);
            if !ignores_all(with_own.as_ref(), so_far) {
                rules = with_own;
            }
            dir = inner;
        }
        rules
    }
}

const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Whether any name at all would be ignored inside `dir`.
fn ignores_all(rules: Option<&Arc<Rules>>, dir: &[u8]) -> bool {
    let mut probe = dir.to_vec();
    probe.extend_from_slice(b"/\x01any name\x01");
    Rules::ignore(rules, &probe, false)
}

fn open_exclude(root: BorrowedFd<'_>) -> Option<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(root, c".git/info/exclude", FLAGS, Mode::empty(), resolve).ok()
}

fn add(builder: &mut GitignoreBuilder, file: OwnedFd, max_bytes: u64) -> bool {
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let mut bytes = Vec::new();
    if !is_file
        || File::from(file)
            .take(max_bytes)
            .read_to_end(&mut bytes)
            .is_err()
    {
        return false;
    }
    let text = String::from_utf8_lossy(&bytes);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A line that is not a glob speaks of nothing, as in git.
        drop(builder.add_line(None, line));
    }
    true
}
