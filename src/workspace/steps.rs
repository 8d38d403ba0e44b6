//! Resolution one component at a time, where the kernel cannot resolve the whole path by itself.
//!
//! Every component is opened without following links, and a link is read from the handle that was opened, so
//! nothing is looked at and then used by name. `..` goes back to the handle that was passed on the way: it
//! cannot reach above the root, whatever is moved meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::error::{Fault, PathError, Spelled};
use super::roots::Roots;

/// What `path_resolution(7)` allows, and this walk too.
const MAX_LINKS: usize = 40;

/// A directory entered below the root.
#[derive(Debug)]
struct Entered {
    name: Vec<u8>,
    handle: OwnedFd,
}

/// Where a path leads, links resolved.
#[derive(Debug)]
pub(super) struct Place {
    dirs: Vec<Entered>,
    /// What is at its end.
    pub(super) found: Found,
    /// The last link on the way.
    pub(super) via: Option<Vec<u8>>,
}

/// What is at the end of a path.
#[derive(Debug)]
pub(super) enum Found {
    /// A directory: the last one entered.
    Directory,
    /// Anything else, opened as a mere place, and its name in the last directory entered.
    Entry {
        name: Vec<u8>,
        handle: OwnedFd,
        stat: Stat,
    },
    /// Nothing: these components are missing below the last directory entered.
    Missing {
        names: Vec<Vec<u8>>,
        must_be_dir: bool,
    },
}

impl Place {
    /// Returns the last directory entered.
    pub(super) fn directory<'a>(&'a self, root: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.dirs.last().map_or(root, |dir| dir.handle.as_fd())
    }

    /// Returns the directories entered, as a path relative to the root.
    pub(super) fn directory_path(&self) -> Vec<u8> {
        self.path_of(&[])
    }

    /// Returns the path of a name in the last directory entered, relative to the root.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        join(self.dirs.iter().map(|dir| dir.name.as_slice()), name)
    }

    /// Returns the fault that stands at a name in the last directory entered.
    pub(super) fn fault(&self, name: &[u8]) -> Fault {
        Fault {
            at: self.path_of(name),
            via: self.via.clone(),
        }
    }

    /// Gives up all but the last directory entered and what is there.
    pub(super) fn into_parts(mut self) -> (Option<OwnedFd>, Found) {
        (self.dirs.pop().map(|dir| dir.handle), self.found)
    }
}

fn join<'a>(dirs: impl Iterator<Item = &'a [u8]>, name: &'a [u8]) -> Vec<u8> {
    let mut path: Vec<u8> = Vec::new();
    for part in dirs
        .chain(std::iter::once(name))
        .filter(|part| !part.is_empty())
    {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    path
}

/// Resolves `path` below `root` without opening what is at its end.
pub(super) fn walk(
    root: BorrowedFd<'_>,
    roots: &Roots,
    path: &[u8],
    spelled: &Spelled<'_>,
) -> Result<Place, PathError> {
    let mut walk = Walk {
        pending: Vec::new(),
        must_be_dir: false,
        links: 0,
        place: Place {
            dirs: Vec::new(),
            found: Found::Directory,
            via: None,
        },
    };
    walk.push(path);
    while let Some(name) = walk.pending.pop() {
        if name == b".." {
            let fault = Fault {
                at: name,
                via: walk.place.via.clone(),
            };
            if walk.place.dirs.pop().is_none() {
                return Err(spelled.outside(&fault));
            }
            continue;
        }
        if walk.step(root, roots, name, spelled)? {
            break;
        }
    }
    Ok(walk.place)
}

struct Walk {
    /// Components still to go, the next one last.
    pending: Vec<Vec<u8>>,
    must_be_dir: bool,
    links: usize,
    place: Place,
}

impl Walk {
    /// Puts the components of a path before those still to go.
    fn push(&mut self, path: &[u8]) {
        if self.pending.is_empty() {
            self.must_be_dir |= ends_as_directory(path);
        }
        let parts = path.split(|byte| *byte == b'/');
        let parts = parts.filter(|part| !part.is_empty() && *part != b".");
        self.pending.extend(parts.rev().map(<[u8]>::to_vec));
    }

    /// Takes one component; returns whether the walk ends there.
    fn step(
        &mut self,
        root: BorrowedFd<'_>,
        roots: &Roots,
        name: Vec<u8>,
        spelled: &Spelled<'_>,
    ) -> Result<bool, PathError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(
            self.place.directory(root),
            name.as_slice(),
            flags,
            Mode::empty(),
        )
        .and_then(|handle| fstat(&handle).map(|stat| (handle, stat)));
        let (handle, stat) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT) => {
                self.pending.push(name);
                let names = std::mem::take(&mut self.pending);
                self.place.found = Found::Missing {
                    names: names.into_iter().rev().collect(),
                    must_be_dir: self.must_be_dir,
                };
                return Ok(true);
            }
            // The directory that may not be searched is at fault, not what is in it.
            Err(Errno::ACCESS) => {
                let fault = self.place.fault(&[]);
                return Err(spelled.system("open", Errno::ACCESS, &fault));
            }
            Err(errno) => return Err(spelled.system("open", errno, &self.place.fault(&name))),
        };
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if file_type.is_dir() {
            self.place.dirs.push(Entered { name, handle });
            return Ok(false);
        }
        if file_type.is_symlink() {
            self.follow(roots, &name, &handle, spelled)?;
            return Ok(false);
        }
        if !self.pending.is_empty() || self.must_be_dir {
            return Err(spelled.not_a_directory(&self.place.fault(&name)));
        }
        self.place.found = Found::Entry { name, handle, stat };
        Ok(true)
    }

    fn follow(
        &mut self,
        roots: &Roots,
        name: &[u8],
        link: &OwnedFd,
        spelled: &Spelled<'_>,
    ) -> Result<(), PathError> {
        let fault = self.place.fault(name);
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(spelled.looped(&fault));
        }
        let target = readlinkat(link, "", Vec::new())
            .map_err(|errno| spelled.system("read the link", errno, &fault))?;
        self.place.via = Some(fault.at);
        let target = target.as_bytes();
        if target.starts_with(b"/") {
            let Some(inside) = roots.strip(target) else {
                return Err(spelled.outside(&Fault {
                    at: Vec::new(),
                    via: self.place.via.clone(),
                }));
            };
            self.place.dirs.clear();
            self.push(inside);
        } else {
            self.push(target);
        }
        Ok(())
    }
}

/// Tells whether a path names a directory by its very form.
pub(super) fn ends_as_directory(path: &[u8]) -> bool {
    let last = path.rsplit(|byte| *byte == b'/').next();
    matches!(last, Some(b"" | b"." | b".."))
}
