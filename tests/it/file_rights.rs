//! Modes and owners with the real binary: the umask of the daemon, and files that an ordinary user may not write
//! (cases WRITE-08 and WRITE-09).

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::support::binary::{BINARY, start_scratch, start_server_in, start_server_through};

const USER: u32 = 65_534;
const AS_USER: [&str; 6] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
];

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Mode, owner, inode and content.
fn state(path: &Path) -> (u32, u32, u64, Vec<u8>) {
    let meta = std::fs::metadata(path).unwrap();
    (
        mode(path),
        meta.uid(),
        meta.ino(),
        std::fs::read(path).unwrap(),
    )
}

#[tokio::test]
async fn new_files_and_directories_get_what_the_umask_of_the_daemon_leaves() {
    for (umask, file, directory) in [
        ("022", 0o644, 0o755),
        ("077", 0o600, 0o700),
        ("002", 0o664, 0o775),
    ] {
        let line = format!("umask {umask}; exec \"$0\" \"$@\"");
        let server = start_server_through(&["sh", "-c", &line], start_scratch(), &["--no-key"]);
        let mut client = server.connect().await;
        for path in ["new", "p/q/new"] {
            let input = json!({"path": path, "content": "x"});
            client.call("write", input).await.check_done();
            assert_eq!(mode(&server.workspace().join(path)), file, "{umask} {path}");
        }
        for path in ["p", "p/q"] {
            assert_eq!(
                mode(&server.workspace().join(path)),
                directory,
                "{umask} {path}"
            );
        }
        // What is there keeps its mode, whatever the umask.
        let path = server.workspace().join("new");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o757)).unwrap();
        let input = json!({"path": "new", "content": "y"});
        client.call("write", input).await.check_done();
        assert_eq!(mode(&path), 0o757);
    }
}

/// Gives a scratch directory to the ordinary user.
fn give_away(scratch: &TempDir) {
    for path in ["", "ws", "home"] {
        chown(scratch.path().join(path), Some(USER), Some(USER)).unwrap();
    }
}

#[tokio::test]
async fn a_file_that_the_user_may_not_write_is_never_replaced() {
    let scratch = start_scratch();
    let at = |name: &str| scratch.path().join("ws").join(name);
    let put = |name: &str, mode: u32| {
        std::fs::write(at(name), "old text").unwrap();
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    put("frozen.txt", 0o444);
    put("in.txt", 0o644);
    let mut refused = vec!["frozen.txt"];
    let server = if rustix::process::geteuid().is_root() {
        let can = Command::new(AS_USER[0])
            .args(&AS_USER[1..])
            .args([BINARY, "--version"])
            .output()
            .is_ok_and(|output| output.status.success());
        if !can {
            println!("not run: the ordinary user cannot run the binary here");
            return;
        }
        for name in ["frozen.txt", "in.txt"] {
            chown(at(name), Some(USER), Some(USER)).unwrap();
        }
        put("of-root.txt", 0o644);
        put("of-root-for-group.txt", 0o664);
        refused.extend(["of-root.txt", "of-root-for-group.txt"]);
        give_away(&scratch);
        start_server_through(&AS_USER, scratch, &["--no-key"])
    } else {
        println!("without files of root: only root can make them");
        start_server_in(scratch, &["--no-key"])
    };
    let workspace = server.workspace();
    let mut client = server.connect().await;
    for name in refused {
        let before = state(&workspace.join(name));
        let input = json!({"path": name, "content": "new"});
        let reply = client.call("write", input).await;
        reply.check_tool_error(&[name, "permission denied"]);
        let input = json!({"path": name, "old_string": "old", "new_string": "new"});
        let reply = client.call("edit", input).await;
        reply.check_tool_error(&[name, "permission denied"]);
        assert_eq!(state(&workspace.join(name)), before, "{name}");
    }
    // A directory that may not be written: its file is written in place, and no new one is made.
    let before = state(&workspace.join("in.txt"));
    std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o555)).unwrap();
    let input = json!({"path": "in.txt", "old_string": "old", "new_string": "new"});
    client.call("edit", input).await.check_done();
    let input = json!({"path": "absent.txt", "content": "x"});
    let reply = client.call("write", input).await;
    std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o755)).unwrap();
    reply.check_tool_error(&["absent.txt", "permission denied"]);
    let after = state(&workspace.join("in.txt"));
    assert_eq!(after.3, b"new text");
    assert_eq!((after.0, after.1, after.2), (before.0, before.1, before.2));
}
