//! `grep` finds the lines that ripgrep finds, by the same rules, on real trees and on an odd one.
//!
//! Where the two differ on purpose, the file stands in a table here with its reason.

use std::collections::BTreeSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bma_executor::process::unmarked;
use serde_json::json;

use crate::support::executor::Options;
use crate::support::{Executor, slow_tests_run, start_executor_with};

/// Fifty patterns: literal, anchored, with classes, repeated, alternatives, Unicode, and without a match.
const PATTERNS: [&str; 50] = [
    "unsafe",
    "fn main",
    "TODO",
    "->",
    "-world",
    "--pre=/x",
    r"\bstruct\b",
    r"^use std::",
    r";$",
    r"^\s*//!",
    r"^$",
    r"\{$",
    r"\w+_handle\b",
    r"\w+\s+=\s+\d+",
    r"\d{4}",
    r"[0-9a-f]{16}",
    r"0x[[:xdigit:]]+",
    r"impl<.*> \w+ for",
    r"pub(\(crate\))? fn",
    r"fn \w+\(&mut self",
    r"(?i)error",
    r"(?i)straße",
    r"(foo|bar|baz)",
    r"Some\((.*)\)\?",
    r"[^\x00-\x7F]",
    r"é",
    r"\p{Greek}",
    r"\p{Lu}{5}",
    r".{120}",
    r"a.c",
    r"\.unwrap\(\)$",
    r"\t",
    r"\r$",
    r"needle",
    r"needle\b",
    r"^needle$",
    r"n[aeiou]{2}dle",
    r"(needle|haystack) \d",
    r"\bneedle",
    r"\Bdle",
    r"(a+)+$",
    r"zzz-not-there",
    r"[[:upper:]]{3}_[[:upper:]]{3}",
    r"#\[derive\(.*Debug",
    r"https?://[^\s)]+",
    r"'\w+",
    r"\(\)\s*\{\s*\}",
    r"x{0}match",
    r"(?-u)\xff",
    r"\x{fffd}",
];

/// A filter as our `glob`, and as what it should come to.
type Filter = (&'static str, fn(&str) -> bool);

const FILTERS: [Filter; 5] = [
    ("*.rs", |path| path.ends_with(".rs")),
    ("*.{toml,md}", |path| {
        path.ends_with(".toml") || path.ends_with(".md")
    }),
    ("**/src/*.rs", |path| {
        let mut parts = path.rsplit('/');
        let name = parts.next().unwrap();
        Path::new(name).extension().is_some_and(|is| is == "rs") && parts.next() == Some("src")
    }),
    ("!*.rs", |path| !path.ends_with(".rs")),
    ("[a-m]*", |path| {
        let name = path.rsplit('/').next().unwrap();
        name.starts_with(|first: char| ('a'..='m').contains(&first))
    }),
];

/// Why the two may differ, and for which pattern in which content.
type Difference = (&'static str, fn(&str, &[u8]) -> bool);

const DIFFERENCES: [Difference; 2] = [
    (
        "ripgrep also drops the matching lines that stand in its buffer before a late NUL; here they are found",
        |_, content| content.contains(&0) && !content.starts_with(b"\xff\xfe"),
    ),
    (
        "an anchor holds at a lone CR, too; so it does in ripgrep with `--crlf` since version 14, not before",
        |pattern, content| {
            let lone = |pair: &[u8]| pair[0] == b'\r' && pair[1] != b'\n';
            pattern.contains(['^', '$']) && content.windows(2).any(lone)
        },
    ),
];

fn is_explained(pattern: &str, path: &Path) -> bool {
    let content = std::fs::read(path).unwrap_or_default();
    let why = DIFFERENCES.iter().find(|(_, is)| is(pattern, &content));
    if let Some((why, _)) = why {
        println!("`{pattern}` in {}: {why}", path.display());
    }
    why.is_some()
}

type Lines = BTreeSet<(Vec<u8>, u64)>;

fn rg_is_there() -> bool {
    let found = unmarked(|| Command::new("rg").arg("--version").output());
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        println!("not run: no `rg` is installed");
    }
    there
}

fn rg(tree: &Path, pattern: &str) -> Lines {
    let mut command = Command::new("rg");
    command
        .args([
            "--no-config",
            "--hidden",
            "--no-require-git",
            "--no-ignore-parent",
        ])
        .args([
            "--no-ignore-global",
            "--no-messages",
            if pattern.contains(r"\r") {
                "--no-crlf"
            } else {
                "--crlf"
            },
            "--color=never",
            "--no-heading",
        ])
        .args([
            "--with-filename",
            "--line-number",
            "--null",
            "-g!.git",
            "-g!.bma",
            "-e",
            pattern,
        ])
        .arg("./")
        .current_dir(tree)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = unmarked(|| command.spawn())
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "rg {pattern}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut lines = Lines::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let (Some(path), Some(rest)) = (parts.next(), parts.next()) else {
            // ripgrep says in such a line that it stopped at a NUL.
            continue;
        };
        let number = rest.split(|byte| *byte == b':').next().unwrap();
        let number = std::str::from_utf8(number).unwrap().parse().unwrap();
        lines.insert((path.strip_prefix(b"./").unwrap_or(path).to_vec(), number));
    }
    lines
}

/// Takes back the form in which a name that is not text is shown.
fn unescape(shown: &str) -> Vec<u8> {
    let Some(inner) = shown
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return shown.as_bytes().to_vec();
    };
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        match (byte, byte == b'\\') {
            (_, false) => bytes.push(byte),
            (_, true) => match rest.next().unwrap() {
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    let digits = std::str::from_utf8(&digits).unwrap();
                    bytes.push(u8::from_str_radix(digits, 16).unwrap());
                }
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                b'r' => bytes.push(b'\r'),
                plain => bytes.push(plain),
            },
        }
    }
    bytes
}

/// An executor whose answers are not cut.
fn start_unbounded() -> Executor {
    start_executor_with(Options {
        configure: Box::new(|config| {
            config.limits.grep_matches = 1_000_000;
            config.limits.grep_bytes = 60 << 20;
            config.limits.grep_counted = 10_000_000;
            config.limits.grep_excerpt_chars = 8;
        }),
        ..Options::default()
    })
}

async fn check_agrees(executor: &Executor, tree: &str) {
    let root = executor.workspace().join(tree);
    let mut client = executor.connect().await;
    let mut compared = 0;
    for (at, pattern) in PATTERNS.into_iter().enumerate() {
        let theirs = rg(&root, pattern);
        let filter = FILTERS[at % FILTERS.len()];
        for (glob, passes) in [None, Some(filter)].map(Option::unzip) {
            let mut input = json!({"pattern": pattern, "path": tree});
            if let Some(glob) = glob {
                input["glob"] = json!(glob);
            }
            let id = client.send_call("grep", input).await;
            let reply = client
                .expect_result_within(&id, Duration::from_mins(1))
                .await;
            let details = reply.check_done().details();
            assert_eq!(details["truncated"], false, "{pattern}: {}", reply.notes());
            let ours: Lines = (details["hits"].as_array().unwrap().iter())
                .map(|hit| {
                    let path = unescape(hit["path"].as_str().unwrap());
                    let path = path.strip_prefix(format!("{tree}/").as_bytes()).unwrap();
                    (path.to_vec(), hit["line"].as_u64().unwrap())
                })
                .collect();
            let passes = |path: &[u8]| passes.is_none_or(|is| is(&String::from_utf8_lossy(path)));
            let differ: Vec<_> = (theirs.iter().filter(|(path, _)| passes(path)))
                .filter(|line| !ours.contains(line))
                .map(|line| ("only ripgrep", line))
                .chain(ours.difference(&theirs).map(|line| ("only here", line)))
                .chain((ours.iter().filter(|(path, _)| !passes(path))).map(|line| ("filter", line)))
                .collect();
            let files: BTreeSet<_> = differ.iter().map(|(_, (path, _))| path).collect();
            let explained: BTreeSet<_> = (files.into_iter())
                .filter(|path| is_explained(pattern, &root.join(std::ffi::OsStr::from_bytes(path))))
                .collect();
            let unexplained: Vec<_> = (differ.iter())
                .filter(|(_, (path, _))| !explained.contains(path))
                .map(|(side, (path, line))| {
                    format!("{side}: {}:{line}", String::from_utf8_lossy(path))
                })
                .take(20)
                .collect();
            assert!(
                unexplained.is_empty(),
                "`{pattern}` with {glob:?} in {tree}: {unexplained:#?}"
            );
            compared += ours.len();
        }
    }
    assert!(compared > 1_000, "only {compared} lines were compared");
}

/// The sources of the dependencies, as cargo has unpacked them.
fn crates() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let entries = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let registries = entries(&home.unwrap_or_default().join("registry/src"));
    let mut crates: Vec<_> = registries.iter().flat_map(|path| entries(path)).collect();
    crates.sort();
    crates
}

fn copy_tree(from: &Path, to: &Path, budget: &mut u64) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &target, budget);
        } else if !kind.is_symlink() {
            let size = std::fs::copy(entry.path(), target).unwrap();
            *budget = budget.saturating_sub(size);
        }
    }
}

/// Bytes of a tree: enough for some thousand matching lines, soon compared.
const TREE_BYTES: u64 = 4 << 20;

/// Copies every third crate, from the `nth` on, into a tree `real`. Returns whether there are any.
fn copy_crates(executor: &Executor, nth: usize) -> bool {
    let crates = crates();
    let mut budget = TREE_BYTES;
    for from in crates.iter().skip(nth).step_by(3) {
        if budget == 0 {
            break;
        }
        let to = executor
            .workspace()
            .join("real")
            .join(from.file_name().unwrap());
        copy_tree(from, &to, &mut budget);
    }
    if crates.len() < 9 {
        println!("not run: the sources of the dependencies are not at hand");
    }
    crates.len() >= 9
}

async fn check_agrees_on_crates(nth: usize) {
    if !slow_tests_run() || !rg_is_there() {
        return;
    }
    let executor = start_unbounded();
    if copy_crates(&executor, nth) {
        check_agrees(&executor, "real").await;
    }
}

#[tokio::test]
async fn grep_agrees_with_ripgrep_on_a_first_part_of_the_dependencies() {
    check_agrees_on_crates(0).await;
}

#[tokio::test]
async fn grep_agrees_with_ripgrep_on_a_second_part_of_the_dependencies() {
    check_agrees_on_crates(1).await;
}

#[tokio::test]
async fn grep_agrees_with_ripgrep_on_a_third_part_of_the_dependencies() {
    check_agrees_on_crates(2).await;
}

fn utf16(text: &str, mark: &[u8], bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    [mark.to_vec(), text.encode_utf16().flat_map(bytes).collect()].concat()
}

const TEXT: &str = "needle\nneedle 1\n\tx = 12\nStraße é α\n-world --pre=/x ->\nxneedle\n";

fn write_odd(executor: &Executor, name: &[u8], content: &[u8]) {
    let root = executor.workspace().join("odd");
    let path = root.join(std::ffi::OsString::from_vec(name.to_vec()));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Names and rules that are treated specially.
fn lay_out_odd_names(executor: &Executor) {
    let text = TEXT;
    let write = |name: &[u8], content: &[u8]| write_odd(executor, name, content);
    for name in [
        "plain.txt",
        "a.rs",
        ".hidden",
        ".github/ci.yml",
        "with space.txt",
        "a:1:b.txt",
        "-r",
        "--pre=x",
        "target/x.rs",
        "kept.log",
        "b.log",
        "sub/kept.log",
        "sub/b.tmp",
        "sub/deep/c.log",
        "sub/deep/only.rs",
        "rg/a.txt",
        "rg/b.txt",
        "dir/anchored",
        "anchored",
        "deep/dir/anchored",
        "neg/a.o",
        "neg/keep.o",
        "inner/.git/HEAD",
        "inner/file.rs",
        "[id]/page.rs",
        "{a,b}.rs",
        "back\\slash.rs",
        "caf\u{e9}.md",
    ] {
        write(name.as_bytes(), text.repeat(30).as_bytes());
    }
    for (name, rules) in [
        (
            ".gitignore",
            "/target/\n*.log\n!kept.log\n# a comment\n\\#x\ndir/anchored\n/anchored\n*.o\nneg/\n",
        ),
        (".ignore", "*.tmp\n!only.rs\n"),
        ("sub/.gitignore", "kept.log\n!*.tmp\n!c.log\nonly.rs\n"),
        ("rg/.rgignore", "a.txt\n"),
        ("rg/.ignore", "!a.txt\nb.txt\n"),
        ("neg/.gitignore", "!keep.o\n"),
        (".git/info/exclude", "excluded.rs\n"),
    ] {
        write(name.as_bytes(), rules.as_bytes());
    }
}

/// Contents that are.
fn lay_out_odd_contents(executor: &Executor) {
    let text = TEXT;
    let write = |name: &[u8], content: &[u8]| write_odd(executor, name, content);
    write(b"excluded.rs", text.as_bytes());
    write(b"not-\xff-utf8.rs", text.as_bytes());
    write(b"tab\tname.txt", text.as_bytes());
    write(b"crlf.txt", text.replace('\n', "\r\n").as_bytes());
    write(b"cr.txt", text.replace('\n', "\r").as_bytes());
    write(b"no-end.txt", text.trim_end().as_bytes());
    write(b"empty", b"");
    write(b"latin1.c", b"needle \xe9\n\xff\nabc\n");
    write(b"bom.txt", format!("\u{feff}{text}").as_bytes());
    write(b"utf16le.txt", &utf16(text, b"\xff\xfe", u16::to_le_bytes));
    write(b"utf16be.txt", &utf16(text, b"\xfe\xff", u16::to_be_bytes));
    write(b"lib.a", &[b"needle\n\0needle\n", &[7; 300][..]].concat());
    write(
        b"long.txt",
        format!(
            "{}needle {}\n{text}",
            "x".repeat(300_000),
            "y".repeat(300_000)
        )
        .as_bytes(),
    );
    write(
        b"late-nul.txt",
        &[text.repeat(3_000).as_bytes(), b"\0", text.as_bytes()].concat(),
    );
    let link = executor.workspace().join("odd/link.txt");
    std::os::unix::fs::symlink("plain.txt", link).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"odd/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        executor.workspace().join(name),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
}

#[tokio::test]
async fn grep_agrees_with_ripgrep_on_oddities() {
    if !slow_tests_run() || !rg_is_there() {
        return;
    }
    let executor = start_unbounded();
    lay_out_odd_names(&executor);
    lay_out_odd_contents(&executor);
    check_agrees(&executor, "odd").await;
}
