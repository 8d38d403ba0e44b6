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

use super::batch::kind_of;

/// Names of ignore files, the strongest first: what `.rgignore` says anywhere above an entry outdoes what `.ignore` says,
/// and this what `.gitignore` says.
pub(super) const FILES: [&CStr; 3] = [c".rgignore", c".ignore", c".gitignore"];
/// What marks the root of a repository.
pub(super) const REPOSITORY: &CStr = c".git";

/// The rules of one directory, and those above it.
#[derive(Debug)]
pub(crate) struct Rules {
    /// In the order of [`FILES`], then git's `info/exclude`.
    here: [Gitignore; TIERS],
    /// Whether a repository begins here: git's rules from above do not reach into it.
    is_repository: bool,
    /// Length of the directory's path with its slash: what is cut off a path to judge it here.
    prefix: usize,
    above: Option<Arc<Self>>,
}

const TIERS: usize = FILES.len() + 1;
/// The first of the tiers that are git's own.
const FIRST_OF_GIT: usize = 2;

impl Rules {
    /// Whether an entry is ignored; in each tier the innermost rule that speaks of it decides, as in git.
    pub(super) fn ignore(rules: Option<&Arc<Self>>, path: &[u8], is_dir: bool) -> bool {
        let mut verdicts = [None; TIERS];
        let mut tiers = TIERS;
        let mut next = rules;
        while let Some(level) = next {
            let below = path.get(level.prefix..).unwrap_or_default();
            let below = Path::new(OsStr::from_bytes(below));
            for (verdict, rules) in verdicts.iter_mut().zip(&level.here).take(tiers) {
                if verdict.is_none() && !rules.is_empty() {
                    *verdict = match rules.matched(below, is_dir) {
                        Match::Ignore(_) => Some(true),
                        Match::Whitelist(_) => Some(false),
                        Match::None => None,
                    };
                }
            }
            if let [Some(strongest), ..] = verdicts {
                return strongest;
            }
            if level.is_repository {
                tiers = FIRST_OF_GIT;
            }
            next = level.above.as_ref();
        }
        verdicts.into_iter().flatten().next().unwrap_or(false)
    }

    /// Adds the rules that stand in `dir`, whose path with its slash has `prefix` bytes.
    pub(super) fn enter(
        above: Option<Arc<Self>>,
        dir: BorrowedFd<'_>,
        prefix: usize,
        max_bytes: u64,
    ) -> Option<Arc<Self>> {
        let read = |file: Option<OwnedFd>| {
            file.and_then(|file| rules_in(file, max_bytes))
                .unwrap_or_else(Gitignore::empty)
        };
        let [first, second, third] =
            FILES.map(|name| read(openat(dir, name, FLAGS, Mode::empty()).ok()));
        let is_repository = kind_of(dir, REPOSITORY).is_some();
        let exclude = read(if is_repository {
            open_exclude(dir)
        } else {
            None
        });
        let here = [first, second, third, exclude];
        let says_something = !here.iter().all(Gitignore::is_empty);
        if says_something || (is_repository && above.is_some()) {
            return Some(Arc::new(Self {
                here,
                is_repository,
                prefix,
                above,
            }));
        }
        above
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

fn open_exclude(dir: BorrowedFd<'_>) -> Option<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(dir, c".git/info/exclude", FLAGS, Mode::empty(), resolve).ok()
}

fn rules_in(file: OwnedFd, max_bytes: u64) -> Option<Gitignore> {
    let stat = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    (File::from(file).take(max_bytes).read_to_end(&mut bytes)).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new("");
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A line that is not a glob speaks of nothing, as in git.
        drop(builder.add_line(None, line));
    }
    builder.build().ok()
}
