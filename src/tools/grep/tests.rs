//! `grep` over real trees, through a `Ctx`.

use std::time::{Duration, Instant};

use crate::stop::StopCause;
use crate::tools::search::testing::{Answer, Scratch, grep_input, start_scratch};
use crate::wire::GrepInput;

fn filtered(scratch: &Scratch, pattern: &str, glob: &str, path: Option<&str>) -> Answer {
    scratch.grep_with(GrepInput {
        glob: Some(glob.to_owned()),
        path: path.map(str::to_owned),
        ..grep_input(pattern)
    })
}

#[test]
fn a_pattern_path_or_filter_is_never_an_option() {
    let scratch = start_scratch(&[("f", "-world\n--pre=/x\n->\n"), ("p.sh", "touch PWNED\n")]);
    assert_eq!(scratch.grep("-world", None).lines(), ["f:1:-world"]);
    assert_eq!(scratch.grep("->", None).lines(), ["f:3:->"]);
    assert_eq!(scratch.grep("--", None).lines(), ["f:2:--pre=/x"]);
    assert_eq!(
        scratch.grep("--pre=W/p.sh", None).lines(),
        Vec::<&str>::new()
    );
    assert_eq!(
        scratch.grep("-f/etc/passwd", None).lines(),
        Vec::<&str>::new()
    );
    assert!(scratch.grep("x", Some("-r")).error().contains("-r"));
    assert_eq!(
        filtered(&scratch, "x", "--pre=W/p.sh", None).lines(),
        Vec::<&str>::new()
    );
    assert!(!scratch.path().join("PWNED").exists());
}

#[test]
fn a_path_is_exactly_the_file_or_subtree_it_names() {
    let scratch = start_scratch(&[
        ("a.txt", "x\nneedle\n"),
        ("b.txt", "needle"),
        ("sub/c.txt", "needle"),
    ]);
    for path in ["a.txt", "./sub/../a.txt"] {
        assert_eq!(
            scratch.grep("needle", Some(path)).lines(),
            ["a.txt:2:needle"]
        );
    }
    for path in ["sub", "sub/"] {
        assert_eq!(
            scratch.grep("needle", Some(path)).lines(),
            ["sub/c.txt:1:needle"]
        );
    }
    assert!(
        scratch
            .grep("needle", Some("missing"))
            .error()
            .contains("missing")
    );
    let answer = filtered(&scratch, "needle", "*.md", Some("a.txt"));
    assert_eq!(answer.lines(), ["a.txt:2:needle"]);
    assert!(answer.notes().contains("filter"));
    assert_eq!(
        scratch.grep("needle", None).lines(),
        ["a.txt:2:needle", "b.txt:1:needle", "sub/c.txt:1:needle"]
    );
}

#[test]
fn hidden_and_ignored_places_are_searched_where_they_are_spelled_out() {
    let scratch = start_scratch(&[
        (".github/workflows/ci.yml", "word\n"),
        ("dist/a.js", "word\n"),
        (".gitignore", "dist\n"),
        (".git/config", "word\n"),
    ]);
    let ci = [".github/workflows/ci.yml:1:word"];
    assert_eq!(scratch.grep("word", None).lines(), ci);
    assert_eq!(scratch.grep("word", Some(".github")).lines(), ci);
    assert_eq!(
        scratch
            .grep("word", Some(ci[0].split(':').next().unwrap()))
            .lines(),
        ci
    );
    assert_eq!(
        scratch.grep("word", Some("dist")).lines(),
        ["dist/a.js:1:word"]
    );
    assert_eq!(
        filtered(&scratch, "word", "dist/*.js", None).lines(),
        ["dist/a.js:1:word"]
    );
    assert_eq!(
        scratch.grep("word", Some(".git")).lines(),
        [".git/config:1:word"]
    );
    let none = scratch.grep("zzz", None);
    assert!(
        none.notes().contains("No line matches `zzz`") && none.notes().contains("ignore files")
    );
}

#[test]
fn a_faulty_pattern_is_an_error_with_its_reason() {
    let scratch = start_scratch(&[]);
    scratch.file("big", format!("{}!\n", "a".repeat(50_000)).as_bytes());
    for (pattern, reason) in [
        ("[[", "unclosed character class"),
        ("foo(", "unclosed group"),
        ("*x", "missing expression"),
        ("(?<=a)b", "look-"),
        (r"\p{Nope}", "Unicode property not found"),
        ("a{99999999}", "exceeds"),
        ("", "empty"),
    ] {
        let answer = scratch.grep(pattern, None);
        assert!(answer.error().contains(reason), "{pattern}: {answer:?}");
    }
    let started = Instant::now();
    assert_eq!(
        scratch.grep("zzz-not-there", None).lines(),
        Vec::<&str>::new()
    );
    assert_eq!(scratch.grep("(a+)+$", None).lines(), Vec::<&str>::new());
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn binary_neighbours_are_left_out_and_counted() {
    let scratch = start_scratch(&[("ok.rs", "needle\n")]);
    scratch.file("lib.a", b"\0\x01\xffneedle\0\n\xfe");
    scratch.file("latin1.c", b"needle \xe9\n");
    let late = [&b"needle\n".repeat(20_000)[..], b"\0\nneedle\n"].concat();
    scratch.file("z.late", &late);
    let answer = scratch.grep("needle", None);
    assert_eq!(
        answer.lines()[..2],
        ["latin1.c:1:needle \u{fffd}", "ok.rs:1:needle"]
    );
    assert_eq!(answer.grep_details().skipped.binary, 2);
    assert_eq!(answer.grep_details().total, 20_002);
    assert!(
        answer
            .notes()
            .contains("up to a NUL byte: z.late (at byte 140000)"),
        "{answer:?}"
    );
    let named = scratch.grep("needle", Some("lib.a"));
    assert_eq!(
        named.lines(),
        ["lib.a:1:\u{fffd}\u{1}\u{fffd}needle\u{fffd}"]
    );
    assert!(named.notes().contains("binary"));
    assert_eq!(
        scratch.grep("needle", Some("z.late")).grep_details().total,
        20_001
    );
}

#[test]
fn a_late_nul_counts_the_same_for_small_and_large_files() {
    let mut scratch = start_scratch(&[]);
    scratch.file(
        "f",
        &[&b"needle\n".repeat(10_000)[..], b"ne\0edle\nneedle\n"].concat(),
    );
    for whole in [256 * 1024, 66 * 1024] {
        scratch.limits.search_whole_bytes = whole;
        let answer = scratch.grep("needle", None);
        assert_eq!(answer.grep_details().total, 10_000, "{whole}");
        assert!(answer.notes().contains("f (at byte 70002)"), "{answer:?}");
    }
}

#[test]
fn utf16_with_a_mark_is_searched_as_text() {
    let scratch = start_scratch(&[]);
    let le: Vec<u8> = "\u{feff}x\nné needle\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let be: Vec<u8> = "\u{feff}x\nné needle\n"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    scratch.file("be", &be);
    scratch.file("le", &le);
    scratch.file("mark", b"\xef\xbb\xbfneedle\n");
    let answer = scratch.grep("^n.* ?needle|^needle", None);
    assert_eq!(
        answer.lines(),
        ["be:2:né needle", "le:2:né needle", "mark:1:needle"]
    );
    assert_eq!(
        scratch.grep("needle", Some("le")).lines(),
        ["le:2:né needle"]
    );
}

#[test]
fn a_line_break_in_the_pattern_matches_across_lines() {
    let scratch = start_scratch(&[
        ("crlf", "x\r\nfoo\r\nbar\r\ny\r\n"),
        ("lf", "x\nfoo\nbar\ny\n"),
        ("lit", "foo\\n\n"),
    ]);
    for pattern in ["foo\\nbar", "foo\nbar"] {
        let answer = scratch.grep(pattern, None);
        assert_eq!(answer.lines(), ["lf:2:foo", "lf:3:bar"], "{pattern}");
        assert!(answer.notes().contains(r"\r?\n"));
    }
    assert_eq!(
        scratch.grep(r"foo\r\nbar", None).lines(),
        ["crlf:2:foo", "crlf:3:bar"]
    );
    assert_eq!(scratch.grep(r"foo\\n", None).lines(), ["lit:1:foo\\n"]);
    assert_eq!(scratch.grep("foo.*bar", None).lines(), Vec::<&str>::new());
    let dot_all = scratch.grep_with(GrepInput {
        multiline: Some(true),
        ..grep_input("(?s)foo.*y")
    });
    assert_eq!(dot_all.lines().len(), 6);
    assert_eq!(dot_all.grep_details().hits[0].column, 1);
    assert_eq!(
        scratch.grep("foo$", None).lines(),
        ["crlf:2:foo", "lf:2:foo"]
    );
    let plain = scratch.grep_with(GrepInput {
        multiline: Some(true),
        ..grep_input("^ba")
    });
    assert_eq!(plain.lines(), ["crlf:3:bar", "lf:3:bar"]);
}

#[test]
fn filters_mean_what_they_mean_in_a_shell_below_the_search_root() {
    let scratch = start_scratch(&[
        ("man/intro.md", "key: value\n"),
        ("lib/a.ts", "key: value\n"),
        ("lib/b.tsx", "key: value\n"),
        ("t:1/f 1.txt", "key: value\n"),
    ]);
    let (man, a, b, t) = (
        "man/intro.md:1:key: value",
        "lib/a.ts:1:key: value",
        "lib/b.tsx:1:key: value",
        "t:1/f 1.txt:1:key: value",
    );
    let root = scratch.root();
    for (glob, path, expected) in [
        ("*.{ts,tsx}", None, vec![a, b]),
        ("{man/*.md,lib/*.ts}", None, vec![a, man]),
        ("man/*.md", Some(root.as_str()), vec![man]),
        ("man/*.md", Some("man"), vec![]),
        ("lib/**", None, vec![a, b]),
        ("lib/", None, vec![a, b]),
        ("!*.ts", None, vec![b, man, t]),
        ("!lib/**", None, vec![man, t]),
        ("/lib/*.ts", None, vec![a]),
        ("*.ts", Some("lib"), vec![a]),
        ("f 1.txt", None, vec![t]),
    ] {
        let answer = filtered(&scratch, "key", glob, path);
        assert_eq!(answer.lines(), expected, "{glob} in {path:?}");
    }
    let absolute = format!("{root}/lib/*.ts");
    assert_eq!(
        filtered(&scratch, "key", &absolute, Some("lib")).lines(),
        [a]
    );
    assert!(
        filtered(&scratch, "key", "{unclosed", None)
            .error()
            .contains("{unclosed")
    );
    let hits = &scratch
        .grep("value", Some("t:1"))
        .grep_details()
        .hits
        .clone();
    assert_eq!(
        (hits[0].path.as_str(), hits[0].line, hits[0].column),
        ("t:1/f 1.txt", 1, 6)
    );
    let none = filtered(&scratch, "key", "*.nope", None);
    assert!(none.notes().contains("No file passes the filter"));
}

#[test]
fn context_is_shown_in_groups() {
    let scratch = start_scratch(&[("a", "1\n2\nhit\n4\n5\n6\n7\n8\nhit\n"), ("b", "hit\n2\n")]);
    let input = GrepInput {
        context: Some(1),
        ..grep_input("hit")
    };
    let expected = [
        "a-2-2", "a:3:hit", "a-4-4", "--", "a-8-8", "a:9:hit", "--", "b:1:hit", "b-2-2",
    ];
    assert_eq!(scratch.grep_with(input.clone()).lines(), expected);
    let mut scratch = scratch;
    scratch.limits.grep_matches = 1;
    let answer = scratch.grep_with(input);
    assert_eq!(answer.lines(), expected[..3]);
    assert_eq!(answer.grep_details().total, 3);
}

#[test]
fn an_enormous_line_gives_an_excerpt_with_the_hit() {
    let mut scratch = start_scratch(&[]);
    let line = format!("{}needle{}\n", "é".repeat(1_000_000), "x".repeat(1_000_000));
    scratch.file("f", line.as_bytes());
    let answer = scratch.grep("needle", None);
    let line = answer.lines().swap_remove(0);
    let text = line.strip_prefix("f:1:").unwrap();
    assert!(
        text.chars().count() <= 500 && text.contains("éneedlex"),
        "{text}"
    );
    assert_eq!(answer.grep_details().hits[0].column, 2_000_001);
    scratch.limits.search_line_bytes = 1_000_000;
    let answer = scratch.grep("needle", None);
    assert!(
        answer.notes().contains("too large for the buffer: f"),
        "{answer:?}"
    );
    assert!(!answer.grep_details().total_is_exact);
}

#[test]
fn a_cut_answer_is_the_same_every_time_and_within_its_bounds() {
    let mut scratch = start_scratch(&[]);
    scratch.limits.search_serial_entries = 5;
    for n in 0..200 {
        scratch.file(&format!("d{}/{n:03}", n % 9), &b"needle here\n".repeat(20));
    }
    let first = scratch.grep("needle", None);
    assert_eq!(first.lines().len(), 500);
    assert_eq!(first.grep_details().total, 4_000);
    assert!(first.notes().contains("first 500 of 4000"));
    let mut sorted = first.lines();
    sorted.sort_by_key(|line| line.split(':').next().unwrap().to_owned());
    assert_eq!(sorted, first.lines());
    for _ in 0..10 {
        assert_eq!(scratch.grep("needle", None).lines(), first.lines());
    }
    scratch.limits.grep_counted = 100;
    let answer = scratch.grep("needle", None);
    assert_eq!(answer.lines(), first.lines());
    assert!(!answer.grep_details().total_is_exact);
    scratch.limits.grep_bytes = 1_000;
    let answer = scratch.grep("needle", None);
    assert!(answer.grep_details().truncated && answer.lines().join("\n").len() <= 1_000);
}

#[test]
fn special_files_and_links_are_counted_not_opened() {
    let scratch = start_scratch(&[("f", "needle\n")]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scratch.path().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    scratch.link("out", "/etc/passwd");
    scratch.link("in", "f");
    let answer = scratch.grep("needle|root", None);
    assert_eq!(answer.lines(), ["f:1:needle"]);
    let skipped = &answer.grep_details().skipped;
    assert_eq!((skipped.special, skipped.not_followed), (1, 2));
    assert!(scratch.grep("x", Some("fifo")).error().contains("FIFO"));
    assert!(scratch.grep("x", Some("out")).error().contains("outside"));
    assert_eq!(scratch.grep("needle", Some("in")).lines(), ["in:1:needle"]);
}

/// Found nowhere, and not soon: every byte may begin a match, so three hundred states are followed at once.
const COSTLY: &str = "[ab]*a[ab]{300}c";

fn costly(bytes: u32) -> Vec<u8> {
    let letter = |n: u32| b'a' + (n.wrapping_mul(n) >> 7 & 1) as u8;
    (0..bytes).map(letter).collect()
}

#[test]
fn a_long_search_tells_how_far_it_is() {
    let mut scratch = start_scratch(&[]);
    scratch.limits.search_progress = Duration::from_millis(1);
    scratch.file("hit", b"needle\n");
    scratch.file("long", &costly(100_000));
    let answer = scratch.grep(&format!("needle|{COSTLY}"), None);
    assert_eq!(answer.lines().len(), 1, "{answer:?}");
    let said = scratch.said.lock().unwrap();
    assert!(
        said.first()
            .is_some_and(|text| text.contains("files") && text.contains("hits")),
        "{said:?}"
    );
}

#[test]
fn a_stop_does_not_wait_for_a_costly_pattern() {
    let mut scratch = start_scratch(&[]);
    scratch.limits.search_grace = Duration::from_millis(10);
    scratch.file("f", &costly(600_000));
    let stop = scratch.stop.clone();
    let stopper = std::thread::spawn(move || stop.trigger(StopCause::Deadline));
    let answer = scratch.grep(COSTLY, None);
    assert!(stopper.join().unwrap());
    assert_eq!(answer.0.stopped, Some(StopCause::Deadline));
    assert!(!answer.0.content.is_empty());
}

#[test]
fn a_line_end_is_lf_or_crlf_unless_the_pattern_names_cr() {
    let scratch = start_scratch(&[("f", "one\r\ntwo\n")]);
    for (pattern, lines) in [
        ("one$", 1),
        (r"(one|two)$", 2),
        (r"\r$", 1),
        (r"\x0d", 1),
        (r"one\r?$", 1),
        ("[\r]$", 1),
    ] {
        let answer = scratch.grep(pattern, None);
        assert_eq!(answer.grep_details().total, lines, "{pattern}");
    }
}
