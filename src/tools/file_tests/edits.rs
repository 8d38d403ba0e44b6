//! `edit`.

use std::time::{Duration, Instant};

use super::*;
use crate::stop::StopCause;
use crate::tools::digest::sha256_hex;

#[track_caller]
fn check_edit(output: &ToolOutput, replacements: u64, lines: &[u64]) {
    assert!(!output.is_error, "{output:?}");
    match &output.details {
        Some(Details::Edit(details)) => {
            assert_eq!(
                (details.replacements, details.lines.as_slice()),
                (replacements, lines)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn both_texts_are_literal() {
    let room = start_room();
    let new = "emit(\"$& $1 $$ $` $' ${x} \\1 \\n \\\\0\");";
    for all in [false, true] {
        room.put("f", "head();\nemit(a);\ntail();\n");
        let output = if all {
            room.edit_all("f", "emit(a);", new).await
        } else {
            room.edit("f", "emit(a);", new).await
        };
        check_edit(&output, 1, &[2]);
        assert_eq!(text(&output, 0), "Edited f: 1 replacement, line 2");
        assert_eq!(
            room.get("f"),
            format!("head();\n{new}\ntail();\n").as_bytes()
        );
    }
    let signs = "a.b*c[d](e){2}^$|\\";
    room.put("f", format!("aXbc {signs} x"));
    check_edit(&room.edit("f", signs, "ok").await, 1, &[1]);
    assert_eq!(room.get("f"), b"aXbc ok x");
}

#[tokio::test]
async fn line_breaks_match_and_take_the_ending_of_the_file() {
    let room = start_room();
    for (file, old, new, want) in [
        ("l1\r\nl2\r\nl3\r\n", "l1\nl2", "A\nB", "A\r\nB\r\nl3\r\n"),
        (
            "l1\r\nl2\r\nl3\r\n",
            "l1\r\nl2",
            "A\r\nB",
            "A\r\nB\r\nl3\r\n",
        ),
        ("l1\nl2\nl3\n", "l1\r\nl2", "A\r\nB", "A\nB\nl3\n"),
        // Mixed: each place keeps its own.
        (
            "a\nb\r\nc\nd\r\n",
            "b\nc",
            "x\ny\nz",
            "a\nx\r\ny\r\nz\nd\r\n",
        ),
        // No break matched: the ending of the line where the match begins.
        ("one\r\ntwo\n", "one", "1\n1", "1\r\n1\r\ntwo\n"),
        ("one\r\ntwo\n", "two", "2\r\n2", "one\r\n2\n2\n"),
        // The last line has none: the ending of the line before.
        ("one\r\ntwo", "two", "2\n2", "one\r\n2\r\n2"),
        ("two", "two", "2\n2", "2\n2"),
        // A match that begins or ends with a break takes the whole of it.
        ("a\r\n\r\nb\r\n", "\n\nb", "\nb", "a\r\nb\r\n"),
        ("a\r\nb\r\n", "a\n", "", "b\r\n"),
        ("x\r\r\ny", "x\r\ny", "no", "x\r\r\ny"),
        ("a\rb\r\n", "a\rb", "c", "c\r\n"),
    ] {
        room.put("f", file);
        let output = room.edit("f", old, new).await;
        assert_eq!(
            String::from_utf8(room.get("f")).unwrap(),
            want,
            "{old:?} → {new:?} in {file:?}: {output:?}"
        );
    }
}

#[tokio::test]
async fn empty_and_equal_texts_are_refused_and_touch_nothing() {
    let room = start_room();
    let path = room.put("f", "abc");
    room.put("empty", "");
    let before = identity(&path);
    for file in ["f", "empty", "absent"] {
        check_error(&room.edit(file, "", "X").await, &["`old_string` is empty"]);
        check_error(
            &room.edit_all(file, "", "X").await,
            &["`old_string` is empty"],
        );
    }
    check_error(&room.edit("f", "abc", "abc").await, &["the same"]);
    room.put("lf", "a\nb\n");
    check_error(
        &room.edit("lf", "a\nb", "a\r\nb").await,
        &["nothing in `lf`"],
    );
    check_error(
        &room.edit("absent", "x", "y").await,
        &["`absent` does not exist"],
    );
    check_error(&room.edit("empty", "x", "y").await, &["empty"]);
    assert_eq!(identity(&path), before);
    assert!(!room.at("absent").exists());
}

#[tokio::test]
async fn occurrences_that_overlap_are_not_one() {
    let room = start_room();
    room.put("f", "aaa");
    check_error(
        &room.edit("f", "aa", "b").await,
        &["occurs 2 times", "line"],
    );
    check_edit(&room.edit_all("f", "aa", "b").await, 1, &[1]);
    assert_eq!(room.get("f"), b"ba");
    room.put("f", "x\ny\nx\n\nx\n");
    let refused = room.edit("f", "x", "z").await;
    check_error(
        &refused,
        &["occurs 3 times", "lines 1, 3, 5", "`replace_all`"],
    );
    check_edit(&room.edit_all("f", "x", "z").await, 3, &[1, 3, 5]);
}

#[tokio::test]
async fn a_stale_digest_is_refused_before_anything_is_written() {
    let room = start_room();
    let path = room.put("f", "now");
    let before = identity(&path);
    let mut input = edit_input("f", "now", "then");
    input.expected_sha256 = Some(sha256_hex(b"before"));
    check_error(
        &crate::tools::edit(&room.ctx, input.clone()).await,
        &["`expected_sha256`", &sha256_hex(b"now")],
    );
    assert_eq!(identity(&path), before);
    input.expected_sha256 = Some(sha256_hex(b"now"));
    check_edit(&crate::tools::edit(&room.ctx, input).await, 1, &[1]);
}

#[tokio::test]
async fn bytes_outside_the_match_stay() {
    let room = start_room();
    let old = b"let n = 7\n# na\xefve \xb1\xe0\xc2\xeb \xff\0\n";
    room.put("f", old);
    check_edit(&room.edit("f", "n = 7", "n = 8").await, 1, &[1]);
    let new = room.get("f");
    assert_eq!(new.len(), old.len());
    assert_eq!(
        new.iter().zip(old).filter(|(new, old)| new != old).count(),
        1
    );
}

#[tokio::test]
async fn a_byte_order_mark_stays_where_it_is() {
    let room = start_room();
    room.put("f", "\u{feff}alpha\r\n漢字\r\n");
    check_edit(&room.edit("f", "alpha", "alphabet").await, 1, &[1]);
    check_edit(&room.edit("f", "alphabet\r\n漢", "beta\n漢").await, 1, &[1]);
    check_edit(
        &room.edit("f", "\u{feff}beta", "\u{feff}gamma").await,
        1,
        &[1],
    );
    assert_eq!(room.get("f"), "\u{feff}gamma\r\n漢字\r\n".as_bytes());
}

#[tokio::test]
async fn nothing_is_replaced_that_is_not_exactly_there_but_a_hint_is_given() {
    let room = start_room();
    let begun = Instant::now();
    room.put("f", "first\nred   green blue\n");
    check_error(
        &room.edit("f", "red green", "XY").await,
        &["does not occur", "line 2", "white space"],
    );
    check_error(&room.edit_all("f", "    ", "XY").await, &["does not occur"]);
    check_error(
        &room.edit("f", "  1\tfirst\n  2\tred   green", "XY").await,
        &["numbers", "line 1"],
    );
    check_error(
        &room.edit("f", "violet", "XY").await,
        &["does not occur", "read the file"],
    );
    assert_eq!(room.get("f"), b"first\nred   green blue\n");
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_edits_at_once_by_all_spellings_are_all_in_the_file() {
    let room = start_room();
    std::fs::create_dir(room.at("sub")).unwrap();
    let lines = (1..=1_000).map(|line| line.to_string());
    let lines = lines.collect::<Vec<_>>().join("\n") + "\n";
    room.put("f", lines);
    room.link("f", "link");
    let absolute = room.at("f").display().to_string();
    let mut second = room.ctx.clone();
    second.workspace = room.ctx.workspace.below("sub").unwrap();
    let edits = (1..=50).map(|number| {
        let path = match number % 5 {
            0 => "f",
            1 => "./f",
            2 => "sub/../f",
            3 => &absolute,
            _ => "link",
        };
        let input = edit_input(
            path,
            &format!("\n{}\n", number * 2),
            &format!("\n{}-done\n", number * 2),
        );
        let ctx = room.ctx.clone();
        tokio::spawn(async move { crate::tools::edit(&ctx, input).await })
    });
    let edits: Vec<_> = edits.collect();
    data(&room.write("other", "o").await);
    for edit in edits {
        data(&edit.await.unwrap());
    }
    let after = String::from_utf8(room.get("f")).unwrap();
    assert_eq!(after.lines().count(), 1_000);
    assert_eq!(
        after.lines().filter(|line| line.ends_with("-done")).count(),
        50
    );
    room.check_no_leftovers();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hard_links_and_new_files_do_not_race() {
    let room = start_room();
    let path = room.put(
        "a",
        (1..=40)
            .map(|line| format!("<{line}>"))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    std::fs::hard_link(&path, room.at("b")).unwrap();
    room.link("new", "newlink");
    let mut calls = Vec::new();
    for number in 1..=40 {
        let ctx = room.ctx.clone();
        let path = if number % 2 == 0 { "a" } else { "b" };
        let input = edit_input(path, &format!("<{number}>"), &format!("done {number}"));
        calls.push(tokio::spawn(async move {
            crate::tools::edit(&ctx, input).await
        }));
        let ctx = room.ctx.clone();
        let input = WriteInput {
            path: if number % 2 == 0 { "new" } else { "newlink" }.to_owned(),
            content: number.to_string(),
        };
        calls.push(tokio::spawn(async move {
            crate::tools::write(&ctx, input).await
        }));
    }
    let mut created = 0;
    for call in calls {
        created += usize::from(data(&call.await.unwrap()).ends_with("(created)"));
    }
    assert_eq!(created, 1, "one call made the new file");
    let after = String::from_utf8(room.get("a")).unwrap();
    assert_eq!(
        after
            .lines()
            .filter(|line| line.starts_with("done"))
            .count(),
        40
    );
    assert!(room.at("newlink").is_symlink());
}

#[tokio::test]
async fn large_edits_are_fast_whatever_the_text() {
    let room = start_room();
    room.put("many", "a needle in a line\n".repeat(60_000));
    room.put(
        "end",
        [b"aaaaaaaaab".repeat(5_000_000), b"unique".to_vec()].concat(),
    );
    room.put("same", vec![b'a'; 20_000_000]);
    let begun = Instant::now();
    let output = room.edit_all("many", "needle", "pin").await;
    assert!(
        text(&output, 0).contains("60000 replacements"),
        "{output:?}"
    );
    check_edit(&room.edit("end", "unique", "found").await, 1, &[1]);
    check_error(
        &room.edit("same", &"a".repeat(50_000), "b").await,
        &["at least 1000 times"],
    );
    check_error(
        &room
            .edit("same", &format!("{}b", "a".repeat(50_000)), "b")
            .await,
        &["does not occur"],
    );
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn an_edit_that_would_grow_without_bound_is_refused() {
    let limits = Limits {
        edit_bytes: 1_000_000,
        edit_replacements: 100,
        ..Limits::default()
    };
    let room = start_room_with(limits, None);
    room.put("f", "x".repeat(100));
    check_error(
        &room.edit_all("f", "x", &"y".repeat(100_000)).await,
        &["nothing was changed"],
    );
    room.put("f", "x".repeat(101));
    check_error(
        &room.edit_all("f", "x", "y").await,
        &["more than 100 times"],
    );
    room.put("big", "x".repeat(1_000_001));
    check_error(
        &room.edit("big", "x", "y").await,
        &["1000001 bytes", "at most 1000000"],
    );
}

#[tokio::test]
async fn a_stopped_edit_changes_nothing() {
    let room = start_room();
    room.put("f", "old");
    room.ctx.stop.trigger(StopCause::Shutdown);
    let output = room.edit("f", "old", "new").await;
    assert_eq!(output.stopped, Some(StopCause::Shutdown));
    assert_eq!(room.get("f"), b"old");
}
