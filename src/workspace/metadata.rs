//! What a replaced file hands on: owner, group, mode and extended attributes (access lists are among them).
//!
//! All of it or nothing: a file whose attributes cannot be handed on is written in place instead.

use std::ffi::CStr;
use std::fs::File;

use rustix::fs::{
    Gid, Mode, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr, flistxattr, fremovexattr,
    fsetxattr, fstat,
};
use rustix::io::Errno;

/// The permission bits with set-user-id, set-group-id and sticky.
const MODE_BITS: u32 = 0o7777;
/// The kernel's own ceiling for a list of names and for a value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const XATTR_MAX: usize = 64 * 1024;

/// Gives `new` the attributes of `old`, whose `stat` is known.
pub(super) fn hand_on(old: &File, stat: &Stat, new: &File) -> Result<(), Errno> {
    let fresh = fstat(new)?;
    let owner = (fresh.st_uid != stat.st_uid).then(|| Uid::from_raw(stat.st_uid));
    let group = (fresh.st_gid != stat.st_gid).then(|| Gid::from_raw(stat.st_gid));
    if owner.is_some() || group.is_some() {
        fchown(new, owner, group)?;
    }
    hand_on_attributes(old, new)?;
    // Last: a change of owner takes set-id bits away, an access list carries a mode of its own.
    fchmod(new, Mode::from_raw_mode(stat.st_mode & MODE_BITS))?;
    let given = fstat(new)?;
    let (want, have) = (identity(stat), identity(&given));
    if want == have {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// Sets the mode again where writing has taken set-id bits away.
pub(super) fn restore_mode(file: &File, stat: &Stat) -> Result<(), Errno> {
    if fstat(file)?.st_mode == stat.st_mode {
        return Ok(());
    }
    fchmod(file, Mode::from_raw_mode(stat.st_mode & MODE_BITS))
}

fn identity(stat: &Stat) -> (u32, u32, u32) {
    (stat.st_uid, stat.st_gid, stat.st_mode & MODE_BITS)
}

fn hand_on_attributes(old: &File, new: &File) -> Result<(), Errno> {
    let (names, inherited) = (names(old)?, names(new)?);
    for name in split(&inherited).filter(|name| !split(&names).any(|kept| kept == *name)) {
        fremovexattr(new, name)?;
    }
    for name in split(&names) {
        let value = whole(|buffer| fgetxattr(old, name, buffer))?;
        if split(&inherited).any(|has| has == name)
            && whole(|buffer| fgetxattr(new, name, buffer))? == value
        {
            continue;
        }
        fsetxattr(new, name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

fn names(file: &File) -> Result<Vec<u8>, Errno> {
    match whole(|buffer| flistxattr(file, buffer)) {
        Err(Errno::NOTSUP) => Ok(Vec::new()),
        other => other,
    }
}

/// Calls with a buffer large enough for most, then with one large enough for all.
fn whole(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    let len = match call(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(XATTR_MAX, 0);
            call(&mut buffer)?
        }
        other => other?,
    };
    buffer.truncate(len);
    Ok(buffer)
}

fn split(names: &[u8]) -> impl Iterator<Item = &CStr> {
    names
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
}
