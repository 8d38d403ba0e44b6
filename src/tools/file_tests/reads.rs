//! `read`.

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use super::*;
use crate::stop::StopCause;
use crate::wire::Encoding;

#[tokio::test]
async fn lines_are_returned_exactly_and_a_last_one_without_break_counts() {
    let room = start_room();
    room.put("f1", "p\nq\nr");
    room.put("f2", "p\nq\n");
    assert_eq!(data(&room.read_at("f1", 3, None).await), "r");
    let whole = room.read("f2").await;
    assert_eq!(data(&whole), "p\nq\n");
    assert_eq!(whole.content.len(), 1, "a whole file needs no note");
    let details = read_details(&whole);
    assert_eq!(
        (details.first_line, details.last_line, details.total_lines),
        (Some(1), Some(2), Some(2))
    );
    assert_eq!(details.next_offset, None);
    assert!(details.sha256.is_some());
    let part = room.read_at("f2", None, 1).await;
    assert_eq!(data(&part), "p\n");
    assert_eq!(
        text(&part, 1),
        "Line 1 of 2; 1 more follow: go on with offset 2."
    );
    assert_eq!(read_details(&part).next_offset, Some(2));
    assert_eq!(read_details(&part).sha256, None);
}

#[tokio::test]
async fn an_offset_past_the_end_is_an_error_with_the_true_line_count() {
    let room = start_room();
    room.put("f1", "p\nq\nr");
    room.put("f2", "p\nq\n");
    room.put("f3", "");
    for (path, offset, lines) in [
        ("f1", 4, "3 lines"),
        ("f1", 1200, "3 lines"),
        ("f2", 3, "2 lines"),
    ] {
        let output = room.read_at(path, offset, 200).await;
        check_error(&output, &["past the end", lines, path]);
        assert!(!text(&output, 0).contains("empty"));
    }
    check_error(
        &room.read_at("f3", 2, None).await,
        &["past the end", "empty"],
    );
}

#[tokio::test]
async fn an_empty_file_is_a_success_with_a_note_only() {
    let room = start_room();
    room.put("f3", "");
    for offset in [None, Some(1)] {
        let output = room.read_at("f3", offset, None).await;
        assert!(!output.is_error);
        assert_eq!(output.content.len(), 1);
        assert!(text(&output, 0).contains("empty"));
        assert!(read_details(&output).empty);
        assert_eq!(read_details(&output).first_line, None);
    }
}

#[tokio::test]
async fn special_files_are_refused_by_kind_within_a_second() {
    let room = start_room();
    let fifo = room.at("p");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o644.into()).unwrap();
    room.link("p", "l");
    let _socket = UnixListener::bind(room.at("s")).unwrap();
    let begun = Instant::now();
    for path in ["p", "l"] {
        check_error(&room.read(path).await, &[path, "a FIFO"]);
        check_error(&room.write(path, "x").await, &[path, "a FIFO"]);
        check_error(&room.edit(path, "x", "y").await, &[path, "a FIFO"]);
    }
    check_error(&room.read("s").await, &["a socket"]);
    check_error(&room.write("s", "x").await, &["a socket"]);
    check_error(&room.read("/dev/zero").await, &["outside"]);
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_window_of_a_huge_file_does_not_read_the_rest() {
    let room = start_room();
    let path = room.put("huge", "first\n".repeat(20));
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    file.set_len(8 * 1024 * 1024 * 1024).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"last\n").unwrap();
    let begun = Instant::now();
    let output = room.read_at("huge", 2, 3).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    // A sparse file's NULs stand within the first 8 KiB: it is not text, and was not read to find that out.
    check_error(&output, &["binary data"]);
    room.put(
        "huge2",
        "a line of some length, as in a log\n".repeat(2_100_000),
    );
    let output = room.read_at("huge2", 2_000_000, 2).await;
    assert_eq!(data(&output).lines().count(), 2);
    let details = read_details(&output);
    assert_eq!(details.total_lines, None);
    assert_eq!(details.next_offset, Some(2_000_002));
    assert!(text(&output, 1).contains("were not counted"));
}

#[tokio::test]
async fn a_long_line_is_clipped_at_a_character_with_a_note() {
    let room = start_room();
    room.put("one", format!("x{}\nnext\n", "é".repeat(100_000)));
    let output = room.read("one").await;
    let shown = data(&output);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].len(), 64 * 1024 - 1);
    assert_eq!(lines[1], "next");
    assert!(text(&output, 1).contains("Line 1 is 200001 bytes long"));
    let details = read_details(&output);
    assert_eq!((details.clipped_lines, details.total_lines), (1, Some(2)));
    assert_eq!(details.encoding, Encoding::Utf8);
    assert_eq!(details.sha256, None);
}

#[tokio::test]
async fn without_a_limit_at_most_256_kib_are_returned_and_with_one_what_fits_the_message() {
    let room = start_room();
    room.put("f", "0123456789abcde\n".repeat(100_000));
    let output = room.read_at("f", None, 100_000).await;
    assert!(data(&output).len() > 900_000);
    assert!(serde_json::to_string(&data(&output)).unwrap().len() <= room.ctx.max_result_bytes);
    room.put("wide", format!("{}\n", "w".repeat(1_000)).repeat(2_000));
    let output = room.read("wide").await;
    let len = data(&output).len();
    assert!((256 * 1024 - 1_001..=256 * 1024).contains(&len), "{len}");
    let next = read_details(&output).next_offset.unwrap();
    assert!(data(&room.read_at("wide", next, None).await).starts_with('w'));
}

#[tokio::test]
async fn control_bytes_and_invalid_bytes_are_counted_as_they_are_encoded() {
    let mut room = start_room();
    room.ctx.max_result_bytes = 64 * 1024;
    room.put(
        "controls",
        format!("{}\n", "\u{1}".repeat(99)).repeat(1_000),
    );
    room.put("invalid", b"\xfd\xfe\xfd\xfc\n".repeat(20_000));
    for path in ["controls", "invalid"] {
        let output = room.read_at(path, None, 100_000).await;
        let encoded = serde_json::to_string(&data(&output)).unwrap().len();
        assert!(
            (48 * 1024..=56 * 1024).contains(&encoded),
            "{path}: {encoded}"
        );
        let details = read_details(&output);
        assert_eq!(details.next_offset, details.last_line.map(|last| last + 1));
        assert_eq!(
            u64::try_from(data(&output).lines().count()).unwrap(),
            details.last_line.unwrap()
        );
    }
}

#[tokio::test]
async fn binary_files_are_named_by_kind_and_text_that_begins_like_one_is_text() {
    let room = start_room();
    room.put("z", b"PK\x03\x04\x14\0\0\0\x08\0");
    room.put("e", b"\x7fELF\x02\x01\x01\0\0");
    room.put("r", b"\x01\x02\x03\0".repeat(16_000));
    room.put("late", [b"text\n".repeat(4_000), b"\0\n".to_vec()].concat());
    check_error(&room.read("z").await, &["ZIP", "10 bytes"]);
    check_error(&room.read("e").await, &["ELF"]);
    check_error(&room.read("r").await, &["binary data", "64000 bytes"]);
    check_error(&room.read_at("late", 4_001, None).await, &["binary data"]);
    assert_eq!(data(&room.read_at("late", 1, 1).await), "text\n");
    room.put("svg", "<?xml version=\"1.0\"?><svg/>\n");
    room.put("pk", "PK\x03\x04 is the mark of ZIP\n");
    assert!(data(&room.read("svg").await).starts_with("<?xml"));
    assert!(data(&room.read("pk").await).starts_with("PK"));
}

#[tokio::test]
async fn utf16_with_a_mark_is_decoded_and_other_encodings_are_noted() {
    let room = start_room();
    room.put("le", b"\xff\xfeh\0i\0\n\0");
    room.put("be", b"\xfe\xff\0h\0i\0\n");
    room.put("latin", b"caf\xe9\n");
    room.put("bom", b"\xef\xbb\xbfhi\n");
    for (path, encoding) in [("le", Encoding::Utf16Le), ("be", Encoding::Utf16Be)] {
        let output = room.read(path).await;
        assert_eq!(data(&output), "hi\n");
        assert!(text(&output, 1).contains("UTF-16"));
        assert_eq!(read_details(&output).encoding, encoding);
    }
    let output = room.read("latin").await;
    assert_eq!(data(&output), "caf\u{fffd}\n");
    assert!(text(&output, 1).contains("not valid UTF-8"));
    assert_eq!(read_details(&output).encoding, Encoding::Unknown);
    assert_eq!(data(&room.read("bom").await), "\u{feff}hi\n");
}

#[tokio::test]
async fn an_image_is_an_image_block() {
    let room = start_room();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    room.put("a.txt", png);
    let output = room.read("a.txt").await;
    assert!(
        matches!(&output.content[0], ContentBlock::Image { .. }),
        "{output:?}"
    );
    assert_eq!(
        read_details(&output).media_type.as_deref(),
        Some("image/png")
    );
    room.put("big.png", [png.to_vec(), vec![7; 2_000_000]].concat());
    check_error(&room.read("big.png").await, &["image/png", "2000016 bytes"]);
}

#[tokio::test]
async fn a_read_can_be_stopped() {
    let room = start_room();
    room.put("f", "x\n");
    room.ctx.stop.trigger(StopCause::Deadline);
    assert_eq!(room.read("f").await.stopped, Some(StopCause::Deadline));
}

#[tokio::test]
async fn every_exact_name_opens_its_own_file() {
    let room = start_room();
    let names = [
        "a b",
        "a\u{a0}b",
        "a\u{202f}b",
        "caf\u{e9}",
        "cafe\u{301}",
        " lead",
        "trail ",
        "tab\tx",
        "new\nline",
        "-rf",
        "~x",
        "%41",
        "$HOME",
        "\"quoted",
        "back\\slash",
    ];
    for name in names {
        room.put(name, name);
    }
    for name in names {
        let shown = crate::workspace::spelling::show(name.as_bytes()).into_owned();
        let output = room.read(&shown).await;
        assert_eq!(data(&output), name);
        assert_eq!(read_details(&output).path, shown);
        assert_eq!(
            data(&room.write(&shown, "w").await),
            format!("Wrote 1 bytes to {shown} (replaced)")
        );
        room.edit(&shown, "w", "edited").await;
        assert_eq!(room.get(name), b"edited");
    }
}

#[tokio::test]
async fn characters_that_lie_across_blocks_stay_whole() {
    let room = start_room();
    // Blocks have 64 KiB; each shift puts another byte of a character at their border.
    for shift in 0..4 {
        let line = format!(
            "{}{}\n",
            "x".repeat(shift),
            "\u{1f600}\u{e9}\u{20ac}".repeat(8)
        );
        let content = "s".repeat(shift) + "\n" + &line.repeat(4_000);
        room.put("f", &content);
        let whole = room.read_at("f", None, 1_000_000).await;
        assert_eq!(data(&whole), content, "shift {shift}");
        assert_eq!(read_details(&whole).encoding, Encoding::Utf8);
        let tail = room.read_at("f", 3_999, 2).await;
        assert_eq!(data(&tail), line.repeat(2), "shift {shift}");
    }
}

#[tokio::test]
async fn one_bad_byte_among_many_blocks_is_shown_where_it_is() {
    let room = start_room();
    let mut content = "a line of text\n".repeat(20_000).into_bytes();
    content[200_000] = 0xff;
    room.put("f", &content);
    let whole = room.read_at("f", None, 1_000_000).await;
    assert_eq!(data(&whole), String::from_utf8_lossy(&content));
    let details = read_details(&whole);
    assert_eq!(
        (
            details.encoding,
            details.returned_bytes,
            details.total_lines
        ),
        (Encoding::Unknown, content.len() as u64, Some(20_000))
    );
}
