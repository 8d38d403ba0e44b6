//! The walk over real trees: complete, bounded, and never outside.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, RenameFlags, mkdirat, renameat_with, unlinkat};

use super::stack::DIRECTORY;
use super::*;
use crate::stop::StopCause;

/// Collects every file, and how many descriptors below `root` it ever saw open.
struct Collector<'a> {
    paths: Vec<Vec<u8>>,
    contents: Vec<Vec<u8>>,
    errors: Vec<(Vec<u8>, Errno)>,
    ignored: u64,
    root: &'a Path,
    most_open: &'a AtomicUsize,
    stop_at: Option<(usize, &'a Stop)>,
}

impl Visitor for Collector<'_> {
    fn claim(&self, entry: &Entry<'_>) -> Claim {
        if entry.kind == Kind::File {
            Claim::UnlessIgnored
        } else {
            Claim::No
        }
    }
    fn descend(&self, _: &Entry<'_>) -> Claim {
        Claim::UnlessIgnored
    }
    fn take(&mut self, entry: &Entry<'_>) {
        self.paths.push(entry.path.to_vec());
        if let Some((at, stop)) = self.stop_at
            && self.paths.len() == at
        {
            stop.trigger(StopCause::Cancelled);
        }
        if let Ok(Some((file, _))) = entry.open() {
            self.contents
                .push(std::io::read_to_string(file).unwrap().into_bytes());
        }
        if self.paths.len().is_multiple_of(16) {
            let open = open_below(self.root);
            self.most_open.fetch_max(open, Ordering::Relaxed);
        }
    }
    fn unreadable(&mut self, path: &[u8], why: Errno) {
        self.errors.push((path.to_vec(), why));
    }
    fn ignored(&mut self) {
        self.ignored += 1;
    }
}

fn open_below(root: &Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with(root))
        .count()
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, DIRECTORY, Mode::empty()).unwrap()
}

struct Walked {
    paths: Vec<Vec<u8>>,
    contents: Vec<Vec<u8>>,
    errors: Vec<(Vec<u8>, Errno)>,
    most_open: usize,
}

fn walk_all(root: &Path, limits: &Limits, stop_at: Option<usize>) -> Walked {
    let most_open = AtomicUsize::new(0);
    let root = &root.canonicalize().unwrap();
    let stop = Stop::new();
    let base = Base {
        root: Directory::Below(open(root)),
        dir: open(root),
        path: Vec::new(),
    };
    let parts = walk(base, limits, &stop, &Tally::default(), || Collector {
        paths: Vec::new(),
        contents: Vec::new(),
        errors: Vec::new(),
        ignored: 0,
        root,
        most_open: &most_open,
        stop_at: stop_at.map(|at| (at, &stop)),
    })
    .unwrap();
    let mut walked = Walked {
        paths: Vec::new(),
        contents: Vec::new(),
        errors: Vec::new(),
        most_open: most_open.load(Ordering::Relaxed),
    };
    for part in parts {
        walked.paths.extend(part.paths);
        walked.contents.extend(part.contents);
        walked.errors.extend(part.errors);
    }
    walked.paths.sort();
    walked
}

/// Limits that make a small tree behave like a large one.
fn tight() -> Limits {
    Limits {
        search_serial_entries: 3,
        search_handles: 2,
        search_threads: 3,
        ..Limits::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "tests lay out their trees")]
fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn every_file_is_found_once_whatever_the_bounds(
        paths in proptest::collection::btree_set("([a-c]/){0,6}f[0-9]", 0..60), serial in 0_u64..20, handles in 0_usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        for path in &paths {
            write(&dir.path().join(path), b"");
        }
        let limits = Limits { search_serial_entries: serial, search_handles: handles, ..tight() };
        let walked = walk_all(dir.path(), &limits, None);
        let expected: BTreeSet<_> = paths.into_iter().map(String::into_bytes).collect();
        prop_assert_eq!(walked.paths, expected.into_iter().collect::<Vec<_>>());
        prop_assert!(walked.errors.is_empty());
    }
}

#[test]
fn a_tree_of_2000_levels_is_walked_with_few_descriptors() {
    const LEVELS: usize = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let mode = Mode::from_raw_mode(0o755);
    let mut at = open(dir.path());
    for level in 0..LEVELS {
        mkdirat(&at, "deep", mode).unwrap();
        // A second branch makes the level wait on the stack.
        if level % 10 == 0 {
            mkdirat(&at, "side", mode).unwrap();
            let file = openat(&at, "side/f", OFlags::CREATE | OFlags::WRONLY, mode).unwrap();
            drop(file);
        }
        at = openat(&at, "deep", DIRECTORY, Mode::empty()).unwrap();
    }
    drop(at);
    let walked = walk_all(dir.path(), &Limits::default(), None);
    let tight = walk_all(dir.path(), &tight(), None);
    // The tree is too deep to be removed by recursion: lift what is below, level by level.
    let top = open(dir.path());
    for _ in 0..LEVELS {
        if unlinkat(&top, "side/f", AtFlags::empty()).is_ok() {
            unlinkat(&top, "side", AtFlags::REMOVEDIR).unwrap();
        }
        let none = RenameFlags::empty();
        renameat_with(&top, "deep", &top, "old", none).unwrap();
        for name in ["deep", "side"] {
            match renameat_with(&top, format!("old/{name}"), &top, name, none) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(why) => panic!("{name}: {why}"),
            }
        }
        unlinkat(&top, "old", AtFlags::REMOVEDIR).unwrap();
    }
    for walked in [walked, tight] {
        assert!(walked.errors.is_empty(), "{:?}", walked.errors.first());
        assert_eq!(walked.paths.len(), LEVELS / 10);
        let most = walked.most_open;
        assert!((1..=64).contains(&most), "{most} descriptors");
    }
}

#[test]
fn exchanging_directories_and_links_never_leads_outside() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    for n in 0..20 {
        write(&outside.path().join(format!("s{n}/secret")), b"secret");
        write(&dir.path().join(format!("d/s{n}/open")), b"open");
    }
    let link = dir.path().join("l");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let d = dir.path().join("d");
                renameat_with(CWD, &d, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for round in 0..300 {
            let limits = if round % 2 == 0 {
                tight()
            } else {
                Limits::default()
            };
            let walked = walk_all(dir.path(), &limits, None);
            for content in walked.contents {
                assert_eq!(content, b"open");
            }
            for path in walked.paths {
                assert!(!path.ends_with(b"secret"), "{}", path.escape_ascii());
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_stop_ends_the_walk_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..600 {
        write(&dir.path().join(format!("d{}/f{n}", n % 40)), b"");
    }
    for limits in [tight(), Limits::default()] {
        let walked = walk_all(dir.path(), &limits, Some(5));
        assert!(
            walked.paths.len() < 600 - 100,
            "{} entries after the stop",
            walked.paths.len()
        );
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_walked() {
    if rustix::process::geteuid().is_root() {
        println!("not run: permissions do not bind root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a/f"), b"");
    write(&dir.path().join("closed/f"), b"");
    let closed = dir.path().join("closed");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let walked = walk_all(dir.path(), &tight(), None);
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(walked.errors, [(b"closed".to_vec(), Errno::ACCESS)]);
    assert_eq!(walked.paths, [Path::new("a/f").as_os_str().as_bytes()]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "tests lay out their trees")]
fn rules_of_git_end_where_a_repository_begins_and_stronger_files_win() {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in [
        (".gitignore", "*.log\n"),
        (".ignore", "*.tmp\n!keep.log\n"),
        ("keep.log", ""),
        ("a.log", ""),
        ("sub/.gitignore", "keep.log\n!*.tmp\n"),
        ("sub/keep.log", ""),
        ("sub/a.tmp", ""),
        ("inner/.git/HEAD", ""),
        ("inner/.git/info/exclude", "secret\n"),
        ("inner/a.log", ""),
        ("inner/a.tmp", ""),
        ("inner/secret", ""),
        ("inner/deep/b.log", ""),
    ] {
        let full = dir.path().join(path);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(full, content).unwrap();
    }
    let walked = walk_all(dir.path(), &Limits::default(), None);
    let paths: Vec<_> = (walked.paths.iter())
        .map(|path| std::str::from_utf8(path).unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            ".gitignore",
            ".ignore",
            "inner/a.log",
            "inner/deep/b.log",
            "keep.log",
            "sub/.gitignore",
            "sub/keep.log",
        ]
    );
}
