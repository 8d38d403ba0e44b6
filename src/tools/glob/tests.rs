//! `glob` over real trees, through a `Ctx`.

use std::time::{Duration, Instant};

use crate::stop::StopCause;
use crate::tools::search::testing::start_scratch;

#[test]
fn what_the_pattern_spells_out_is_found_though_hidden_or_ignored() {
    let scratch = start_scratch(&[
        (".github/workflows/ci.yml", "word"),
        (".env", "x"),
        ("dist/app.js", ""),
        ("dist/sub/b.js", ""),
        ("src/c.js", ""),
        ("packages/p/dist/d.js", ""),
        (".gitignore", "dist/\n.env\n"),
    ]);
    for (pattern, path, expected) in [
        (
            ".github/workflows/*.yml",
            None,
            vec![".github/workflows/ci.yml"],
        ),
        (".env", None, vec![".env"]),
        ("**/.env", None, vec![".env"]),
        ("dist/app.js", None, vec!["dist/app.js"]),
        ("dist/**/*.js", None, vec!["dist/app.js", "dist/sub/b.js"]),
        ("*.js", Some("dist"), vec!["dist/app.js"]),
        (
            "**/*.js",
            Some("./dist/"),
            vec!["dist/app.js", "dist/sub/b.js"],
        ),
        ("packages/*/dist/*.js", None, vec!["packages/p/dist/d.js"]),
        ("{src,dist}/*.js", None, vec!["dist/app.js", "src/c.js"]),
    ] {
        let answer = scratch.glob(pattern, path);
        assert_eq!(answer.lines(), expected, "{pattern} in {path:?}");
    }
    let answer = scratch.glob("**/*.js", None);
    assert_eq!(answer.lines(), ["src/c.js"]);
    assert!(answer.notes().contains("Left out: 2 entries"), "{answer:?}");
    let answer = scratch.glob(".*", None);
    assert_eq!(answer.lines(), [".gitignore"]);
    assert_eq!(answer.glob_details().skipped.ignored, 1);
}

#[test]
fn rules_inside_an_ignored_directory_that_was_spelled_out_still_hold() {
    let scratch = start_scratch(&[
        (".gitignore", "dist/*\n*.log\n"),
        ("dist/.gitignore", "secret\n"),
        ("dist/secret", ""),
        ("dist/open", ""),
        (".bma/.gitignore", "*\n"),
        (".bma/outputs/1.out", ""),
        ("a.log", ""),
    ]);
    assert_eq!(
        scratch.glob("*", Some("dist")).lines(),
        ["dist/.gitignore", "dist/open"]
    );
    assert_eq!(
        scratch.glob("**", Some(".bma/outputs")).lines(),
        [".bma/outputs/1.out"]
    );
    assert_eq!(
        scratch.glob(".bma/**/*.out", None).lines(),
        [".bma/outputs/1.out"]
    );
    assert_eq!(scratch.glob("**/*", None).lines(), [".gitignore"]);
}

#[test]
fn inner_rules_override_outer_ones_and_exclude_files_count() {
    let scratch = start_scratch(&[
        (".gitignore", "*.log\n/only-here\n"),
        ("a/.gitignore", "!keep.log\n"),
        ("a/keep.log", ""),
        ("a/drop.log", ""),
        ("a/only-here", ""),
        ("only-here", ""),
        (".ignore", "!wanted.log\n"),
        ("wanted.log", ""),
        (".git/info/exclude", "excluded\n"),
        ("a/excluded", ""),
    ]);
    assert_eq!(
        scratch.glob("**/*[^e]", None).lines(),
        ["a/keep.log", "wanted.log"]
    );
    assert_eq!(scratch.glob("a/only-h*", None).lines(), ["a/only-here"]);
    assert_eq!(scratch.glob("a/exc*", None).lines(), Vec::<&str>::new());
    assert_eq!(
        scratch.glob(".git/info/*", None).lines(),
        [".git/info/exclude"]
    );
}

#[test]
fn circular_links_are_not_followed_and_each_file_comes_once() {
    let scratch = start_scratch(&[("d/f.txt", "needle")]);
    scratch.link("d/self", ".");
    scratch.link("d/up", "..");
    scratch.link("a", "b");
    scratch.link("b", "a");
    let deep = format!("x/{}f.txt", "d/".repeat(400));
    scratch.file(&deep, b"needle");
    let started = Instant::now();
    let answer = scratch.glob("**/*.txt", None);
    assert_eq!(answer.lines(), ["d/f.txt", deep.as_str()]);
    assert_eq!(scratch.glob("[ab]", None).lines(), ["a", "b"]);
    assert_eq!(scratch.glob("b", None).lines(), ["b"]);
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn absolute_patterns_and_literal_prefixes_are_where_the_search_begins() {
    let scratch = start_scratch(&[
        ("big/dir7/a.txt", ""),
        ("big/dir7/sub/b.txt", ""),
        ("big/c.txt", ""),
    ]);
    let absolute = format!("{}/big/dir7/*.txt", scratch.root());
    assert_eq!(
        scratch.glob(&absolute, Some("/")).lines(),
        ["big/dir7/a.txt"]
    );
    let absolute = format!("{}/big/c.txt", scratch.root());
    assert_eq!(scratch.glob(&absolute, None).lines(), ["big/c.txt"]);
    assert_eq!(
        scratch.glob("dir7/sub/*.txt", Some("big")).lines(),
        ["big/dir7/sub/b.txt"]
    );
    assert_eq!(
        scratch.glob("./big//dir7/./*", None).lines(),
        ["big/dir7/a.txt"]
    );
    assert_eq!(
        scratch.glob("../big/*.txt", Some("big")).lines(),
        ["big/c.txt"]
    );
    for outside in ["../**", "/etc/*", "/etc/passwd", "../x", "*/../../x"] {
        assert!(!scratch.glob(outside, None).error().is_empty());
    }
}

#[test]
fn stars_brackets_and_braces_mean_what_they_mean_in_a_shell() {
    let scratch = start_scratch(&[
        ("a.rs", ""),
        ("s/b.rs", ""),
        ("s/t/c.rs", ""),
        ("app/[id]/p.tsx", ""),
        ("app/i/p.tsx", ""),
        ("-x1", ""),
        ("we ird*", ""),
    ]);
    for (pattern, expected) in [
        ("*.rs", vec!["a.rs"]),
        ("**/*.rs", vec!["a.rs", "s/b.rs", "s/t/c.rs"]),
        ("s/*.rs", vec!["s/b.rs"]),
        ("s/**", vec!["s/b.rs", "s/t/c.rs"]),
        ("**/t/*", vec!["s/t/c.rs"]),
        ("{a,s/b}.rs", vec!["a.rs", "s/b.rs"]),
        ("[a-b].rs", vec!["a.rs"]),
        ("app/[id]/*.tsx", vec!["app/[id]/p.tsx", "app/i/p.tsx"]),
        ("app/[id]/p.tsx", vec!["app/[id]/p.tsx", "app/i/p.tsx"]),
        (r"app/\[id\]/p.tsx", vec!["app/[id]/p.tsx"]),
        ("-x*", vec!["-x1"]),
        ("we ird*", vec!["we ird*"]),
        ("s", vec!["s/"]),
        ("*/", vec!["app/", "s/"]),
        ("**/t/", vec!["s/t/"]),
        ("a.rs/", vec![]),
        ("nope/*.rs", vec![]),
        ("a.rs/*", vec![]),
    ] {
        assert_eq!(scratch.glob(pattern, None).lines(), expected, "{pattern}");
    }
    assert!(
        scratch
            .glob("nope/*", None)
            .notes()
            .contains("`nope` does not exist")
    );
    assert!(
        scratch
            .glob("s*", None)
            .notes()
            .contains("1 directory does match")
    );
    assert!(
        scratch
            .glob("{unclosed", None)
            .error()
            .contains("{unclosed")
    );
    assert!(
        scratch
            .glob("*", Some("missing"))
            .error()
            .contains("missing")
    );
    assert!(
        scratch
            .glob("*", Some("a.rs"))
            .error()
            .contains("not a directory")
    );
}

#[test]
fn names_of_any_bytes_are_shown_escaped_and_taken_back() {
    let scratch = start_scratch(&[]);
    scratch.file_at(b"d/n\xff.txt", b"needle");
    scratch.file_at(b"d/two\nlines", b"needle");
    scratch.file_at(b"\"q", b"needle");
    let answer = scratch.glob("**", None);
    let shown = answer.lines();
    assert_eq!(shown, [r#""\"q""#, r#""d/n\xff.txt""#, r#""d/two\nlines""#]);
    for name in shown {
        assert_eq!(scratch.glob(&name, None).lines(), [name.as_str()]);
        assert_eq!(
            scratch.grep("needle", Some(&name)).lines(),
            [format!("{name}:1:needle")]
        );
    }
}

#[test]
fn a_cut_answer_is_ordered_before_the_cut_and_gives_the_total() {
    let mut scratch = start_scratch(&[]);
    scratch.limits.glob_paths = 10;
    scratch.limits.search_serial_entries = 5;
    for n in 0..40 {
        scratch.file(&format!("d{}/{n:02}.txt", n % 7), b"");
    }
    let first = scratch.glob("**/*.txt", None);
    assert_eq!(first.lines()[..3], ["d0/00.txt", "d0/07.txt", "d0/14.txt"]);
    assert_eq!(first.lines().len(), 10);
    assert_eq!(
        (first.glob_details().total, first.glob_details().truncated),
        (40, true)
    );
    assert!(first.notes().contains("first 10 of 40"));
    for _ in 0..20 {
        assert_eq!(scratch.glob("**/*.txt", None).lines(), first.lines());
    }
    scratch.limits.glob_paths = 40;
    assert!(!scratch.glob("**/*.txt", None).glob_details().truncated);
}

#[test]
fn a_search_that_was_stopped_says_so() {
    let scratch = start_scratch(&[("a.txt", "")]);
    scratch.stop.trigger(StopCause::Deadline);
    let answer = scratch.glob("*", None);
    assert_eq!(answer.0.stopped, Some(StopCause::Deadline));
}

#[test]
fn what_is_repeated_of_the_input_is_bounded() {
    let scratch = start_scratch(&[("f", "")]);
    for pattern in [
        "é".repeat(1_000_000),
        format!("[{}", "é".repeat(3_000)),
        "*".repeat(7_000),
    ] {
        let answer = scratch.glob(&pattern, None);
        let texts = format!("{:?}", answer.0.content);
        assert!(texts.len() < 4_000, "{} bytes", texts.len());
        let answer = scratch.grep(&format!("({pattern}"), None);
        assert!(format!("{:?}", answer.0.content).len() < 8_000);
    }
}

#[test]
fn a_question_mark_stands_for_one_character_also_in_the_filter_of_grep() {
    let scratch = start_scratch(&[("café.txt", "needle"), ("d/cafe.txt", "needle")]);
    scratch.file_at(b"caf\xe9.txt", b"needle");
    let answer = scratch.glob("caf?.txt", None);
    assert_eq!(answer.lines(), ["café.txt", r#""caf\xe9.txt""#]);
    assert_eq!(scratch.glob("c*[é].txt", None).lines(), ["café.txt"]);
    assert_eq!(
        scratch.glob("**/c*.txt", None).lines(),
        ["café.txt", r#""caf\xe9.txt""#, "d/cafe.txt"]
    );
    let answer = scratch.grep_with(crate::wire::GrepInput {
        glob: Some("caf?.txt".to_owned()),
        ..crate::tools::search::testing::grep_input("needle")
    });
    assert_eq!(answer.grep_details().matches, 3);
}
