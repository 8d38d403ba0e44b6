//! What is inside the workspace and what is not, by both ways of resolving.

use super::*;
use crate::workspace::PathErrorKind;

fn start_both() -> [Room; 2] {
    [Confinement::Openat2, Confinement::Walk].map(|confinement| {
        let room = start_room_with(Limits::default(), Some(confinement));
        assert_eq!(room.ctx.workspace.confinement(), confinement);
        room
    })
}

#[tokio::test]
async fn paths_that_lead_outside_are_refused_before_anything_is_touched() {
    for room in start_both() {
        std::fs::create_dir_all(room.at("sub")).unwrap();
        std::fs::create_dir(room.beside("ws-evil")).unwrap();
        std::os::unix::fs::symlink("nothing", room.beside("ws-evil/s.txt")).unwrap();
        room.link(room.beside("ws-evil"), "out");
        room.link("../ws-evil", "rel");
        let evil = room.beside("ws-evil/s.txt").display().to_string();
        let dotted = format!("{}/../ws-evil/s.txt", room.at("").display());
        for path in [
            evil.as_str(),
            &dotted,
            "../ws-evil/s.txt",
            "sub/../../ws-evil/s.txt",
            "..",
            "out/s.txt",
            "rel/s.txt",
            "out/new/s.txt",
            "sub/new/../../../ws-evil/x",
            "/etc/passwd",
        ] {
            for output in [
                room.read(path).await,
                room.write(path, "x").await,
                room.edit(path, "x", "y").await,
            ] {
                assert!(output.is_error, "{path}");
                let about = text(&output, 0);
                assert!(
                    about.contains("outside") || about.contains("`sub/new`"),
                    "{about}"
                );
                assert!(about.contains(path), "{about}");
            }
            for error in [
                room.ctx.workspace.open_dir(path).map(drop).unwrap_err(),
                room.ctx
                    .workspace
                    .resolve_dir_or_file(path)
                    .map(drop)
                    .unwrap_err(),
                room.ctx.workspace.below(path).map(drop).unwrap_err(),
            ] {
                assert!(
                    matches!(
                        error.kind(),
                        PathErrorKind::Outside | PathErrorKind::NotFound
                    ),
                    "{error}"
                );
            }
        }
        assert!(!room.at("sub/new").exists());
        assert_eq!(
            std::fs::read_dir(room.beside("ws-evil")).unwrap().count(),
            1
        );
        check_error(&room.read("out/s.txt").await, &["through the link `out`"]);
    }
}

#[tokio::test]
async fn inside_paths_work_in_every_spelling() {
    for room in start_both() {
        std::fs::create_dir_all(room.at("sub/deep")).unwrap();
        room.put("ok.txt", "ok");
        room.link("sub/deep", "deep");
        room.link(room.at("sub"), "abs");
        room.link("abs/deep/../../ok.txt", "chain");
        let root = room.at("").canonicalize().unwrap().display().to_string();
        for path in [
            "ok.txt".to_owned(),
            "./ok.txt".to_owned(),
            "sub/../ok.txt".to_owned(),
            "deep/../../ok.txt".to_owned(),
            "abs/../ok.txt".to_owned(),
            "chain".to_owned(),
            "sub//./deep/../../ok.txt".to_owned(),
            format!("{root}/./ok.txt"),
            format!("/{root}//ok.txt"),
            format!("{root}/abs/deep/../../ok.txt"),
        ] {
            assert_eq!(data(&room.read(&path).await), "ok", "{path}");
            data(&room.write(&path, "ok").await);
        }
        // The kernel's `..` is that of the real directory.
        check_error(&room.read("deep/../ok.txt").await, &["does not exist"]);
        room.ctx.workspace.open_dir(&root).unwrap();
        room.ctx.workspace.open_dir("abs/deep/").unwrap();
        let found = room
            .ctx
            .workspace
            .resolve_dir_or_file("./abs//deep/.")
            .unwrap();
        assert_eq!(found.path, b"abs/deep");
        let root = room.ctx.workspace.resolve_dir_or_file(".").unwrap();
        assert_eq!(root.path, b"");
        let error = room.ctx.workspace.open_dir("ok.txt").unwrap_err();
        assert_eq!(error.kind(), PathErrorKind::NotADirectory);
    }
}

#[tokio::test]
async fn a_root_given_through_a_link_takes_both_spellings() {
    let outside = tempfile::tempdir().unwrap();
    let real = outside.path().join("real");
    std::fs::create_dir_all(real.join("sub")).unwrap();
    let alias = outside.path().join("alias");
    std::os::unix::fs::symlink(&real, &alias).unwrap();
    std::os::unix::fs::symlink(alias.join("sub"), real.join("by-alias")).unwrap();
    let limits = Arc::new(Limits::default());
    for confinement in [Confinement::Openat2, Confinement::Walk] {
        let given = outside.path().join("alias/");
        let mut room = start_room();
        room.ctx.workspace = Workspace::open_confined(&given, &limits, Some(confinement)).unwrap();
        assert_eq!(room.ctx.workspace.root(), real.canonicalize().unwrap());
        for path in [real.join("sub/a"), alias.join("sub/a"), "by-alias/a".into()] {
            data(&room.write(path.to_str().unwrap(), "a").await);
            assert_eq!(data(&room.read(path.to_str().unwrap()).await), "a");
        }
        // A workspace below is confined to itself.
        room.ctx.workspace = room.ctx.workspace.below("by-alias").unwrap();
        assert_eq!(
            room.ctx.workspace.root(),
            real.canonicalize().unwrap().join("sub")
        );
        assert_eq!(data(&room.read("a").await), "a");
        assert_eq!(
            data(&room.read(alias.join("sub/a").to_str().unwrap()).await),
            "a"
        );
        assert_eq!(
            data(&room.read(alias.join("by-alias/a").to_str().unwrap()).await),
            "a"
        );
        check_error(&room.read("../sub/a").await, &["outside"]);
        check_error(
            &room.read(real.join("x").to_str().unwrap()).await,
            &["outside"],
        );
    }
}

#[tokio::test]
async fn a_dangling_link_is_followed_inside_and_refused_outside() {
    for room in start_both() {
        room.link(room.beside("new.txt"), "out");
        room.link("out", "chain");
        room.link("../new.txt", "rel");
        room.link(room.at("in.txt"), "in");
        for path in ["out", "chain", "rel"] {
            check_error(&room.write(path, "x").await, &["outside", path]);
            check_error(&room.edit(path, "", "x").await, &["empty"]);
            check_error(&room.edit(path, "a", "x").await, &["outside"]);
        }
        assert!(!room.beside("new.txt").exists());
        assert!(data(&room.write("in", "x").await).ends_with("(created)"));
        assert_eq!(room.get("in.txt"), b"x");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_exchanged_with_a_link_meanwhile_never_leads_outside() {
    for room in start_both() {
        room.put("d/f", "inside");
        std::fs::create_dir(room.beside("out")).unwrap();
        std::fs::hard_link(room.put("secret", "outside"), room.beside("out/f")).unwrap();
        std::fs::remove_file(room.at("secret")).unwrap();
        room.link(room.beside("out"), "l");
        let (from, to) = (room.at("d"), room.at("l"));
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let exchange = std::thread::spawn(move || {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                let (at, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                rustix::fs::renameat_with(at, &from, at, &to, flags).unwrap();
            }
        });
        for _ in 0..200 {
            let read = room.read("d/../d/f").await;
            assert!(
                read.is_error || data(&read).starts_with("inside"),
                "{read:?}"
            );
            let written = room.write("d/f", "inside again").await;
            assert!(
                !written.is_error || text(&written, 0).contains("`d"),
                "{written:?}"
            );
            let made = room.write("d/new/f", "x").await;
            assert!(!made.is_error || text(&made, 0).contains("`d"), "{made:?}");
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        exchange.join().unwrap();
        let mut names = std::fs::read_dir(room.beside("out")).unwrap();
        assert_eq!(names.next().unwrap().unwrap().file_name(), "f");
        assert!(names.next().is_none(), "something was made outside");
        let meta = std::fs::metadata(room.beside("out/f")).unwrap();
        assert_eq!(meta.len(), 7);
        room.check_no_leftovers();
    }
}
