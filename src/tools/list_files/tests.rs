//! `list_files` over real trees, through a `Ctx`.

use crate::tools::search::testing::{Scratch, start_scratch};

#[test]
fn every_entry_is_listed_also_those_that_cannot_be_examined() {
    let scratch = start_scratch(&[("ok.txt", ""), (".git/x", ""), (".gitignore", "ok.txt\n")]);
    scratch.link("broken", "/nonexistent");
    scratch.link("loop", "loop");
    scratch.file_at(b"n\xff/x", b"");
    mkfifo(&scratch, "p");
    let answer = scratch.list(None);
    assert_eq!(
        answer.lines(),
        [
            ".git/",
            ".gitignore",
            "broken -> /nonexistent",
            "loop -> loop",
            r#""n\xff/""#,
            "ok.txt",
            "p"
        ]
    );
    assert_eq!(scratch.list(Some(r#""n\xff/""#)).lines(), ["x"]);
    assert_eq!(scratch.list(Some(".git")).lines(), ["x"]);
    assert!(
        scratch
            .list(Some("ok.txt"))
            .error()
            .contains("not a directory")
    );
    assert!(scratch.list(Some("missing")).error().contains("missing"));
    assert!(scratch.list(Some("..")).error().contains("outside"));
}

#[test]
fn an_empty_directory_is_said_to_be_empty() {
    let scratch = start_scratch(&[]);
    let answer = scratch.list(Some("."));
    assert!(answer.lines().is_empty() && answer.list_details().empty);
    assert!(answer.notes().contains("empty directory"));
}

#[test]
fn permissions_deny_loudly_or_show_the_names() {
    if rustix::process::geteuid().is_root() {
        println!("not run: permissions do not bind root");
        return;
    }
    let scratch = start_scratch(&[("m/a.txt", ""), ("closed/b", "")]);
    set_mode(&scratch, "m", 0o444);
    set_mode(&scratch, "closed", 0);
    let names = scratch.list(Some("m"));
    let closed = scratch.list(Some("closed"));
    set_mode(&scratch, "m", 0o755);
    set_mode(&scratch, "closed", 0o755);
    assert_eq!(names.lines(), ["a.txt"]);
    assert!(closed.error().contains("ermission denied"));
}

#[test]
fn the_limit_cuts_after_ordering_and_gives_the_total() {
    let mut scratch = start_scratch(&[]);
    for n in (0..1_200).rev() {
        scratch.file(&format!("{n:04}{}", "x".repeat(196)), b"");
    }
    scratch.limits.list_entries = 1_200;
    let whole = scratch.list(None);
    assert_eq!(
        (whole.lines().len(), whole.list_details().truncated),
        (1_200, false)
    );
    assert!(whole.notes().is_empty());
    scratch.limits.list_entries = 1_199;
    let cut = scratch.list(None);
    assert_eq!(cut.lines(), whole.lines()[..1_199]);
    assert_eq!(
        (cut.list_details().total, cut.list_details().truncated),
        (1_200, true)
    );
    assert!(
        cut.notes().contains("1199 of 1200") && cut.notes().contains("1 more"),
        "{cut:?}"
    );
}

fn mkfifo(scratch: &Scratch, name: &str) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, scratch.path().join(name), FileType::Fifo, mode, 0).unwrap();
}

fn set_mode(scratch: &Scratch, name: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(scratch.path().join(name), mode).unwrap();
}
