//! The workspace's own absolute path in its spellings, and what is left of a path below it.
//!
//! This is text only: what is left is still resolved below the open handle, so a wrong match here cannot lead outside.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The spellings of a workspace's absolute path: links resolved, and as it was given.
#[derive(Debug, Clone)]
pub(super) struct Roots(Vec<Vec<u8>>);

impl Roots {
    /// Takes the path with links resolved first, then as given.
    pub(super) fn new<'a>(spellings: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut roots: Vec<Vec<u8>> = Vec::new();
        for spelling in spellings {
            let bytes = spelling.as_os_str().as_bytes();
            if !roots.iter().any(|root| root == bytes) {
                roots.push(bytes.to_vec());
            }
        }
        Self(roots)
    }

    /// Returns the spellings of a directory below.
    pub(super) fn below(&self, paths: &[&[u8]]) -> Self {
        let mut roots: Vec<Vec<u8>> = Vec::new();
        for path in paths {
            for root in &self.0 {
                let joined = if path.is_empty() {
                    root.clone()
                } else {
                    [root.as_slice(), path].join(&b'/')
                };
                if !roots.contains(&joined) {
                    roots.push(joined);
                }
            }
        }
        Self(roots)
    }

    /// Returns the path with links resolved.
    pub(super) fn canonical(&self) -> &[u8] {
        self.0.first().map_or(b"/", Vec::as_slice)
    }

    /// Returns what is left of an absolute path below the workspace; empty for the workspace itself.
    pub(super) fn strip<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        self.0.iter().find_map(|root| strip_one(path, root))
    }
}

/// Strips `root` component by component; empty and `.` components count for nothing.
fn strip_one<'p>(path: &'p [u8], root: &[u8]) -> Option<&'p [u8]> {
    let mut rest = path;
    for want in parts(root) {
        let (name, after) = next(rest)?;
        if name != want {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

/// Returns a path without the empty and `.` components that count for nothing; empty for the directory itself.
pub(super) fn tidy(path: &[u8]) -> Vec<u8> {
    let tidy = parts(path).collect::<Vec<_>>().join(&b'/');
    if path.starts_with(b"/") {
        [b"/", tidy.as_slice()].concat()
    } else {
        tidy
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

/// Returns the next component that counts, and what follows its slash.
fn next(mut path: &[u8]) -> Option<(&[u8], &[u8])> {
    while !path.is_empty() {
        let end = memchr::memchr(b'/', path).unwrap_or(path.len());
        let (name, after) = path.split_at_checked(end)?;
        let after = after.get(1..).unwrap_or_default();
        if !name.is_empty() && name != b"." {
            return Some((name, after));
        }
        path = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_stripped_at_component_boundaries_only() {
        let roots = Roots::new([Path::new("/t/ws"), Path::new("/l/./ws")]);
        for (path, left) in [
            ("/t/ws", Some("")),
            ("/t/ws/", Some("")),
            ("/t/ws/a/b", Some("a/b")),
            ("//t/./ws//a", Some("/a")),
            ("/l/ws/a", Some("a")),
            ("/t/ws/../x", Some("../x")),
            ("/t/ws-evil/s", None),
            ("/t", None),
            ("/", None),
        ] {
            assert_eq!(
                roots.strip(path.as_bytes()),
                left.map(str::as_bytes),
                "{path}"
            );
        }
        let below = |path: &str| roots.below(&[path.as_bytes()]).canonical().to_vec();
        assert_eq!(below(""), b"/t/ws");
        assert_eq!(below("a"), b"/t/ws/a");
        let whole = Roots::new([Path::new("/")]);
        assert_eq!(whole.strip(b"/etc/passwd"), Some(&b"/etc/passwd"[..]));
    }
}
