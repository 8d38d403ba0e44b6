//! `write` and `edit` where the disk is full or a file may not grow: the target stays wholly old, and nothing is left
//! beside it.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::binary::{Server, start_scratch, start_server_through};
use crate::support::{Client, SOON};

const MIB: usize = 1 << 20;

/// A program that mounts 4 MiB over the working directory, for itself alone, and becomes what follows.
const SMALL_DISK: &str =
    r#"mount -t tmpfs -o size=4m,mode=755 none "$PWD" && cd "$PWD" && exec "$0" "$@""#;

/// The same with a file system that cannot set blocks aside, so that only the writing shows that it is full.
const OLD_DISK: &str = r#"truncate -s 4M ../disk$$ && PATH="$PATH:/usr/sbin:/sbin" mkfs.ext2 -q -F ../disk$$ && mount -t ext2 -o loop ../disk$$ "$PWD" && cd "$PWD" && exec "$0" "$@""#;

/// A server whose workspace is a disk of 4 MiB; nothing where this user may not mount.
fn start_on_a_small_disk() -> Option<Server> {
    start_on_a_disk(SMALL_DISK)
}

fn start_on_a_disk(mount: &str) -> Option<Server> {
    let flags = if rustix::process::geteuid().is_root() {
        "-m"
    } else {
        "-rm"
    };
    let through = ["unshare", flags, "sh", "-c", mount];
    let scratch = start_scratch();
    let can = Command::new(through[0])
        .args(&through[1..])
        .arg("true")
        .current_dir(scratch.path().join("ws"))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !can {
        println!("not run: this user cannot mount a small disk");
        return None;
    }
    Some(start_server_through(&through, scratch, &["--no-key"]))
}

/// What a command prints in the workspace, which only the server itself can see.
async fn look(client: &mut Client, command: &str) -> String {
    let reply = client.bash(command).await;
    let text = reply.check_done().data();
    text.strip_suffix("exit_code: 0")
        .unwrap_or_else(|| panic!("`{command}`: {text}"))
        .trim_end()
        .to_owned()
}

/// Content, inode and mode of a file, and every name beside it.
async fn picture(client: &mut Client, name: &str) -> String {
    let command = format!("sha256sum {name}; stat -c '%i %a %h %s' {name}; find . | sort");
    look(client, &command).await
}

#[tokio::test]
async fn on_a_full_disk_a_file_stays_as_it_was_and_nothing_is_left_beside_it() {
    let Some(server) = start_on_a_small_disk() else {
        return;
    };
    let mut client = server.connect().await;
    let make = "yes old | head -c 1500000 >f; cp f one; ln one two; chmod 640 f; head -c 600000 /dev/zero >rest";
    look(&mut client, make).await;
    for name in ["f", "one"] {
        let before = picture(&mut client, name).await;
        for content in ["n".repeat(3 * MIB), "n".repeat(2_500_000)] {
            let input = json!({"path": name, "content": content});
            let reply = client.call("write", input).await;
            reply.check_tool_error(&[name, "space"]);
            assert_eq!(picture(&mut client, name).await, before);
        }
        let input = json!({"path": name, "old_string": "old", "new_string": "a new text", "replace_all": true});
        let reply = client.call("edit", input).await;
        reply.check_tool_error(&[name, "space"]);
        assert_eq!(picture(&mut client, name).await, before);
    }
    let before = picture(&mut client, "f").await;
    let input = json!({"path": "new/deep/er/f", "content": "n".repeat(2 * MIB)});
    let reply = client.call("write", input).await;
    reply.check_tool_error(&["new/deep/er/f", "space"]);
    assert_eq!(
        picture(&mut client, "f").await,
        before,
        "the directories that were made for it are gone too"
    );
    look(&mut client, "rm rest").await;
    let input = json!({"path": "f", "content": "n".repeat(MIB)});
    client.call("write", input).await.check_done();
    assert_eq!(look(&mut client, "stat -c '%a %s' f").await, "640 1048576");
}

#[tokio::test]
async fn on_a_full_disk_a_file_of_two_names_is_still_written_where_it_has_room() {
    let Some(server) = start_on_a_small_disk() else {
        return;
    };
    let mut client = server.connect().await;
    // A copy for the way back finds no place on this disk: it is kept in memory.
    let make =
        "yes old | head -c 2000000 >one; ln one two; head -c 9000000 /dev/zero >rest || true";
    look(&mut client, &format!("{{ {make}; }} 2>/dev/null")).await;
    let input =
        json!({"path": "one", "old_string": "old", "new_string": "new", "replace_all": true});
    client.call("edit", input).await.check_done();
    assert_eq!(
        look(
            &mut client,
            "cmp two <(yes new | head -c 2000000) && find . -name '.bma-tmp*'"
        )
        .await,
        ""
    );
}

#[tokio::test]
async fn a_file_of_two_names_whose_writing_fails_half_way_has_its_old_content_back() {
    let Some(server) = start_on_a_disk(OLD_DISK) else {
        return;
    };
    let mut client = server.connect().await;
    let make = "yes old | head -c 1500000 >one; ln one two; chmod 640 one; head -c 1200000 /dev/zero >rest";
    look(&mut client, make).await;
    let refused = client.bash("fallocate -n -l 3000000 one").await;
    assert!(
        refused.data().contains("unsupported"),
        "this disk can tell: {}",
        refused.data()
    );
    let before = picture(&mut client, "one").await;
    let input = json!({"path": "one", "content": "n".repeat(3 * MIB)});
    let reply = client.call("write", input).await;
    reply.check_tool_error(&["one", "space", "the old content is back"]);
    assert_eq!(picture(&mut client, "one").await, before);
    let input = json!({"path": "two", "old_string": "old", "new_string": "a new text", "replace_all": true});
    let reply = client.call("edit", input).await;
    reply.check_tool_error(&["two", "space", "the old content is back"]);
    assert_eq!(picture(&mut client, "one").await, before);
}

#[tokio::test]
async fn beyond_the_limit_on_file_sizes_a_file_stays_as_it_was_and_the_daemon_lives() {
    // Neither a whole number of blocks nor of pages, so that the last write that succeeds is a short one.
    let limit = MIB + 4_113;
    let fsize = format!("--fsize={limit}");
    let through = ["prlimit", &fsize];
    let mut server = start_server_through(&through, start_scratch(), &["--no-key"]);
    let mut client = server.connect().await;
    let old = "old\n".repeat(50_000);
    let workspace = server.workspace();
    for name in ["f", "one"] {
        std::fs::write(workspace.join(name), &old).unwrap();
    }
    // Larger than the limit: its head alone can be written, and written back.
    let large = "old\n".repeat(600_000);
    std::fs::write(workspace.join("large"), &large).unwrap();
    for (name, link) in [("one", "two"), ("large", "large-two")] {
        std::fs::hard_link(workspace.join(name), workspace.join(link)).unwrap();
    }
    for (name, old) in [("f", &old), ("one", &old), ("large", &large)] {
        let before = picture(&mut client, name).await;
        let content = "n".repeat(limit + 1);
        let input = json!({"path": name, "content": content});
        let reply = client.call("write", input).await;
        reply.check_tool_error(&[name, "ulimit -f"]);
        let input = json!({"path": name, "old_string": "old", "new_string": "a text that is much longer", "replace_all": true});
        let reply = client.call("edit", input).await;
        reply.check_tool_error(&[name, "ulimit -f"]);
        assert!(std::fs::read(workspace.join(name)).unwrap() == old.as_bytes());
        assert_eq!(picture(&mut client, name).await, before);
    }
    let input = json!({"path": "new/f", "content": "n".repeat(limit + 1)});
    let reply = client.call("write", input).await;
    reply.check_tool_error(&["new/f", "ulimit -f"]);
    assert!(!workspace.join("new").exists());
    for name in ["f", "one", "new/f"] {
        let input = json!({"path": name, "content": "n".repeat(limit)});
        client.call("write", input).await.check_done();
        assert_eq!(
            std::fs::metadata(workspace.join(name)).unwrap().len(),
            limit as u64
        );
    }
    // The signal ends a command as ever.
    let reply = client.bash("head -c 2000000 /dev/zero >big; echo $?").await;
    assert!(reply.data().starts_with("153"), "{}", reply.data());
    server.send_signal(rustix::process::Signal::TERM);
    let (code, log) = server.expect_end(SOON);
    assert_eq!(code, Some(0), "{log}");
}
