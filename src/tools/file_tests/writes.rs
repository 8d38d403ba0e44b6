//! `write`.

use super::*;
use crate::stop::StopCause;

#[tokio::test]
async fn the_bytes_on_the_disk_are_the_content() {
    let room = start_room();
    let big = "ſ\u{10ffff}\u{0}x".repeat(700_000);
    for content in [
        "x",
        "x\n",
        "x\n\n",
        "a  \r\nb\t",
        "\u{feff}q",
        "",
        "\u{0}",
        "{\"a\": 1}",
        "<<EOF\n$x\nEOF\n",
        &big,
    ] {
        room.put("f", b"\xef\xbb\xbfold\r\n");
        let output = room.write("f", content).await;
        assert_eq!(
            data(&output),
            format!("Wrote {} bytes to f (replaced)", content.len())
        );
        assert!(room.get("f") == content.as_bytes());
    }
    let output = room.write("new/dirs/f", "abc").await;
    assert_eq!(data(&output), "Wrote 3 bytes to new/dirs/f (created)");
    assert_eq!(room.get("new/dirs/f"), b"abc");
    room.check_no_leftovers();
}

#[tokio::test]
async fn mode_and_attributes_stay_and_the_file_is_a_new_one() {
    let room = start_room();
    for mode in [0o755, 0o700, 0o640, 0o2755, 0o604] {
        let path = room.put("f", "old text");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let has_attributes =
            rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty())
                .is_ok();
        let before = identity(&path);
        data(&room.write("f", "written text").await);
        data(&room.edit("f", "written", "edited").await);
        let after = identity(&path);
        assert_eq!((before.0, before.1, before.2), (after.0, after.1, after.2));
        if has_attributes {
            let mut value = [0; 16];
            let len = rustix::fs::getxattr(&path, "user.note", &mut value).unwrap();
            assert_eq!(&value[..len], b"kept");
        }
    }
    room.check_no_leftovers();
}

#[tokio::test]
async fn owner_and_group_stay_where_the_user_may_give_files_away() {
    if !is_root() {
        return;
    }
    let room = start_room();
    let path = room.put("f", "old");
    std::os::unix::fs::chown(&path, Some(12_345), Some(23_456)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4750)).unwrap();
    data(&room.write("f", "new").await);
    let (mode, owner, group, _) = identity(&path);
    assert_eq!((mode, owner, group), (0o4750, 12_345, 23_456));
}

#[tokio::test]
async fn writing_through_links_keeps_the_links() {
    let room = start_room();
    std::fs::create_dir(room.at("d")).unwrap();
    room.put("d/real", "old");
    room.link("d/real", "link");
    room.link("link", "l2");
    room.link(room.at("d/real"), "absolute");
    room.link("d/../d/new", "dangling");
    room.link("loop", "loop");
    for path in ["link", "l2", "absolute"] {
        data(&room.write(path, &format!("by {path}")).await);
        assert_eq!(room.get("d/real"), format!("by {path}").as_bytes());
        data(&room.edit(path, "by", "edited by").await);
        assert_eq!(room.get("d/real"), format!("edited by {path}").as_bytes());
        assert!(room.at(path).is_symlink());
    }
    assert!(data(&room.write("dangling", "n").await).ends_with("(created)"));
    assert_eq!(room.get("d/new"), b"n");
    assert!(room.at("dangling").is_symlink());
    check_error(&room.write("loop", "x").await, &["loop", "form a loop"]);
    check_error(&room.edit("loop", "x", "y").await, &["loop", "form a loop"]);
    check_error(&room.read("loop").await, &["loop", "form a loop"]);
    room.check_no_leftovers();
}

#[tokio::test]
async fn hard_links_stay_together() {
    let room = start_room();
    let path = room.put("a", "one two three");
    std::fs::hard_link(&path, room.at("b")).unwrap();
    let before = identity(&path);
    data(&room.edit("a", "two", "2").await);
    assert_eq!(room.get("b"), b"one 2 three");
    data(&room.write("b", "longer than it was before, by far").await);
    assert_eq!(room.get("a"), b"longer than it was before, by far");
    assert_eq!(identity(&path), before);
    room.check_no_leftovers();
}

#[tokio::test]
async fn new_files_and_directories_get_what_the_umask_leaves() {
    let room = start_room();
    data(&room.write("x/y", "1").await);
    // The umask belongs to the whole process, so the reference is made by the system under the same one.
    room.put("ref/f", "1");
    assert_eq!(identity(&room.at("x/y")).0, identity(&room.at("ref/f")).0);
    assert_eq!(identity(&room.at("x")).0, identity(&room.at("ref")).0);
}

#[tokio::test]
async fn a_file_the_user_may_not_write_is_never_replaced() {
    if is_root() {
        return;
    }
    let room = start_room();
    let path = room.put("frozen.txt", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let before = identity(&path);
    check_error(
        &room.write("frozen.txt", "new").await,
        &["frozen.txt", "permission denied"],
    );
    check_error(
        &room.edit("frozen.txt", "old", "new").await,
        &["frozen.txt", "permission denied"],
    );
    assert_eq!(identity(&path), before);
    assert_eq!(room.get("frozen.txt"), b"old");
}

#[tokio::test]
async fn a_file_in_a_directory_that_may_not_be_written_is_written_in_place() {
    if is_root() {
        return;
    }
    let room = start_room();
    let path = room.put("d/f", "old");
    let before = identity(&path);
    std::fs::set_permissions(room.at("d"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let written = room.write("d/f", "new").await;
    let created = room.write("d/g", "new").await;
    std::fs::set_permissions(room.at("d"), std::fs::Permissions::from_mode(0o755)).unwrap();
    data(&written);
    check_error(&created, &["d/g", "permission denied"]);
    assert_eq!(room.get("d/f"), b"new");
    assert_eq!(identity(&path), before);
}

#[tokio::test]
async fn directories_and_files_in_the_way_are_named() {
    let room = start_room();
    std::fs::create_dir(room.at("dir")).unwrap();
    room.link("dir", "dirlink");
    room.put("file.txt", "f");
    for path in ["dir", "dirlink", ".", "dir/", "dir/."] {
        check_error(
            &room.write(path, "x").await,
            &[&format!("`{path}` is a directory")],
        );
        check_error(&room.edit(path, "x", "y").await, &["is a directory"]);
        check_error(&room.read(path).await, &["is a directory"]);
    }
    let child = room.write("file.txt/child/deep", "x").await;
    check_error(
        &child,
        &["`file.txt/child/deep`", "`file.txt` is not a directory"],
    );
    check_error(&room.write("file.txt/", "x").await, &["not a directory"]);
    check_error(&room.write("new/", "x").await, &["names a directory"]);
    check_error(&room.write("", "x").await, &["empty"]);
    check_error(&room.write("/", "x").await, &["outside"]);
    check_error(&room.write("no/../x", "x").await, &["`no`"]);
    check_error(
        &room.read("no/such/file").await,
        &["`no/such/file`", "there is no `no`"],
    );
    check_error(&room.write(&"n".repeat(300), "x").await, &["too long"]);
    check_error(&room.write("a\0b", "x").await, &["NUL"]);
    assert!(!room.at("new").exists());
    room.check_no_leftovers();
}

#[tokio::test]
async fn a_stopped_write_leaves_the_old_content() {
    let room = start_room();
    room.put("f", "old");
    room.ctx.stop.trigger(StopCause::Cancelled);
    let output = room.write("f", "new").await;
    assert_eq!(output.stopped, Some(StopCause::Cancelled));
    assert_eq!(room.get("f"), b"old");
    room.check_no_leftovers();
}

#[tokio::test]
async fn a_reader_sees_the_old_or_the_new_content_and_nothing_else() {
    let room = Arc::new(start_room());
    let contents = ["a".repeat(3_000_000), "b".repeat(2_000_000)];
    room.put("f", &contents[0]);
    let writer = {
        let room = Arc::clone(&room);
        let contents = contents.clone();
        tokio::spawn(async move {
            for round in 0..10 {
                data(&room.write("f", &contents[round % 2]).await);
            }
        })
    };
    while !writer.is_finished() {
        let seen = room.get("f");
        assert!(contents.iter().any(|content| content.as_bytes() == seen));
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    room.check_no_leftovers();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_stopped_in_the_middle_is_wholly_done_or_not_at_all() {
    let mut stopped = 0;
    for _ in 0..5 {
        let mut room = start_room();
        room.put("f", "old");
        let stop = Stop::new();
        room.ctx.stop = stop.clone();
        let (ctx, content) = (room.ctx.clone(), "n".repeat(64 * 1024 * 1024));
        let writing = tokio::spawn(async move {
            let path = "f".to_owned();
            crate::tools::write(&ctx, WriteInput { path, content }).await
        });
        let names = || std::fs::read_dir(room.at("")).unwrap().count();
        while names() < 2 && !writing.is_finished() {
            tokio::task::yield_now().await;
        }
        stop.trigger(StopCause::Cancelled);
        let output = writing.await.unwrap();
        if output.stopped.is_some() {
            stopped += 1;
            assert_eq!(room.get("f"), b"old");
        } else {
            assert!(data(&output).contains("replaced"));
            assert_eq!(room.get("f").len(), 64 * 1024 * 1024);
        }
        room.check_no_leftovers();
    }
    assert!(stopped > 0, "no stop came in the middle");
}
