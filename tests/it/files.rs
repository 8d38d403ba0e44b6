//! `read`, `write` and `edit` through the socket (cases READ-01, WRITE-12, EDIT-01).

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::support::start_executor;

#[tokio::test]
async fn a_read_past_the_end_gives_the_true_line_count_and_an_empty_file_is_no_error() {
    let executor = start_executor();
    for (name, content) in [("f1", "p\nq\nr"), ("f2", "p\nq\n"), ("f3", "")] {
        executor.write_file(name, content);
    }
    let mut client = executor.connect().await;
    let reply = client
        .call("read", json!({"path": "f1", "offset": 3}))
        .await;
    assert_eq!(reply.check_done().data(), "r");
    for (name, offset, lines) in [
        ("f1", 4, 3),
        ("f1", 1_200, 3),
        ("f2", 3, 2),
        ("f2", 1_200, 2),
    ] {
        let reply = client
            .call(
                "read",
                json!({"path": name, "offset": offset, "limit": 200}),
            )
            .await;
        reply.check_tool_error(&[name, &lines.to_string()]);
        assert!(!reply.data().contains("empty"), "{}", reply.data());
    }
    let reply = client
        .call("read", json!({"path": "f2", "offset": 2}))
        .await;
    assert_eq!(reply.check_done().data(), "q\n");
    assert_eq!(reply.details()["total_lines"], 2);
    for input in [json!({"path": "f3"}), json!({"path": "f3", "offset": 1})] {
        let reply = client.call("read", input).await;
        assert!(
            reply.check_done().data().contains("empty"),
            "{}",
            reply.data()
        );
        assert_eq!(reply.details()["empty"], true);
    }
    for member in [
        json!({"offset": 0}),
        json!({"offset": -1}),
        json!({"limit": 0}),
    ] {
        let mut input = json!({"path": "f1"});
        input
            .as_object_mut()
            .unwrap()
            .extend(member.as_object().unwrap().clone());
        let name = member.as_object().unwrap().keys().next().unwrap();
        client
            .call("read", input)
            .await
            .check_failed("invalid_input", &[name]);
    }
}

#[tokio::test]
async fn a_window_is_byte_exact_and_the_note_tells_how_to_go_on() {
    let executor = start_executor();
    let content: String = (1..=5_000).map(|line| format!("line {line}\r\n")).collect();
    executor.write_file("long.txt", &content);
    let mut client = executor.connect().await;
    let reply = client.call("read", json!({"path": "long.txt"})).await;
    let expected: String = content.split_inclusive('\n').take(2_000).collect();
    assert_eq!(reply.check_done().data(), expected);
    assert!(reply.notes().contains("2001"), "{}", reply.notes());
    assert_eq!(
        (
            &reply.details()["first_line"],
            &reply.details()["next_offset"]
        ),
        (&json!(1), &json!(2_001))
    );
    let reply = client
        .call(
            "read",
            json!({"path": "long.txt", "offset": 4_999, "limit": 10}),
        )
        .await;
    assert_eq!(reply.check_done().data(), "line 4999\r\nline 5000\r\n");
    assert_eq!(reply.details()["next_offset"], json!(null));
}

#[tokio::test]
async fn what_is_not_there_is_named_and_can_be_repaired() {
    let executor = start_executor();
    executor.write_file("dir/f", "x");
    let mut client = executor.connect().await;
    for tool in ["read", "edit"] {
        let input = json!({"path": "dir/missing.txt", "old_string": "a", "new_string": "b"});
        client
            .call(tool, input)
            .await
            .check_tool_error(&["dir/missing.txt"]);
        let input = json!({"path": "dir", "old_string": "a", "new_string": "b"});
        client
            .call(tool, input)
            .await
            .check_tool_error(&["dir", "directory"]);
    }
    client
        .call("write", json!({"path": "dir", "content": "x"}))
        .await
        .check_tool_error(&["dir", "directory"]);
    client
        .call("write", json!({"path": "dir/f/child", "content": "x"}))
        .await
        .check_tool_error(&["dir/f", "not a directory"]);
    assert_eq!(executor.read_file("dir/f"), b"x");
}

#[tokio::test]
async fn nothing_outside_is_read_or_written() {
    let executor = start_executor();
    let root = executor.workspace().to_str().unwrap().to_owned();
    let outside = format!("{root}-evil");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(format!("{outside}/s.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(&outside, executor.workspace().join("link")).unwrap();
    std::os::unix::fs::symlink(
        format!("{outside}/new.txt"),
        executor.workspace().join("dangling"),
    )
    .unwrap();
    executor.write_file("ok.txt", "inside");
    executor.write_file("sub/x", "x");
    let mut client = executor.connect().await;
    let paths = [
        format!("{outside}/s.txt"),
        format!("{root}/../ws-evil/s.txt"),
        "../ws-evil/s.txt".to_owned(),
        "sub/../../ws-evil/s.txt".to_owned(),
        "link/s.txt".to_owned(),
    ];
    for path in &paths {
        client
            .call("read", json!({"path": path}))
            .await
            .check_tool_error(&[path]);
        client
            .call("write", json!({"path": path, "content": "overwritten"}))
            .await
            .check_tool_error(&[path]);
        let edit = json!({"path": path, "old_string": "secret", "new_string": "overwritten"});
        client.call("edit", edit).await.check_tool_error(&[path]);
        client
            .call("grep", json!({"pattern": "secret", "path": path}))
            .await
            .check_tool_error(&[path]);
    }
    client
        .call("write", json!({"path": "dangling", "content": "x"}))
        .await
        .check_tool_error(&["dangling"]);
    assert!(!std::path::Path::new(&format!("{outside}/new.txt")).exists());
    assert_eq!(
        std::fs::read_to_string(format!("{outside}/s.txt")).unwrap(),
        "secret"
    );
    for path in [
        format!("{root}/./ok.txt"),
        format!("/{root}/ok.txt"),
        "sub/../ok.txt".to_owned(),
    ] {
        assert_eq!(
            client
                .call("read", json!({"path": path}))
                .await
                .check_done()
                .data(),
            "inside",
            "{path}"
        );
    }
}

#[tokio::test]
async fn content_arrives_byte_for_byte() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let random: String = {
        // Reproducible, and of every plane: xorshift over the scalar values.
        let mut state = 0x9e37_79b9_u32;
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            char::from_u32(state % 0x11_0000).unwrap_or('\u{fffd}')
        })
        .take(1_500_000)
        .collect()
    };
    let contents = [
        "x",
        "x\n",
        "x\n\n",
        "a  \r\nb\t",
        "\u{feff}q",
        "",
        "\0",
        "{\"a\": [1, 2]}\n",
        "cat <<'EOF'\nx\nEOF",
        &random,
    ];
    for content in contents {
        for existing in [None, Some("\u{feff}old\r\ntext\r\n")] {
            let _absent = std::fs::remove_file(executor.workspace().join("f"));
            if let Some(existing) = existing {
                executor.write_file("f", existing);
            }
            let reply = client
                .call("write", json!({"path": "f", "content": content}))
                .await;
            let shown: String = content.chars().take(20).collect();
            let word = if existing.is_some() {
                "replaced"
            } else {
                "created"
            };
            assert_eq!(
                reply.check_done().data(),
                format!("Wrote {} bytes to f ({word})", content.len())
            );
            assert!(
                executor.read_file("f") == content.as_bytes(),
                "{shown:?} was changed"
            );
            let digest: String = Sha256::digest(content)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(reply.details()["sha256"], digest, "{shown:?}");
        }
    }
}

#[tokio::test]
async fn an_image_is_a_block_of_its_own_with_a_word_beside_it() {
    let executor = start_executor();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
    executor.write_file("dot.png", png);
    let mut client = executor.connect().await;
    let reply = client.call("read", json!({"path": "dot.png"})).await;
    let block = &reply.check_done().0["content"][0];
    assert_eq!(
        (&block["type"], &block["source"]["media_type"]),
        (&json!("image"), &json!("image/png"))
    );
    assert!(reply.notes().contains("dot.png"), "{}", reply.notes());
}

#[tokio::test]
async fn missing_parents_are_made() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client
        .call("write", json!({"path": "x/y/z.txt", "content": "deep"}))
        .await
        .check_done();
    assert_eq!(executor.read_file("x/y/z.txt"), b"deep");
}

#[tokio::test]
async fn an_edit_takes_both_texts_literally() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let new = "emit(\"$& $1 $$ $` $' ${x} \\1 \\n \\\\0\");";
    for replace_all in [false, true] {
        executor.write_file("f.js", "head();\nemit(a);\ntail();\n");
        let input = json!({"path": "f.js", "old_string": "emit(a);", "new_string": new, "replace_all": replace_all});
        client.call("edit", input).await.check_done();
        assert_eq!(
            executor.read_file("f.js"),
            format!("head();\n{new}\ntail();\n").as_bytes()
        );
    }
    let signs = r"a.b*c[d](e){2}^$|\";
    executor.write_file("signs", format!("aXb {signs} end"));
    client
        .call(
            "edit",
            json!({"path": "signs", "old_string": signs, "new_string": "done"}),
        )
        .await
        .check_done();
    assert_eq!(executor.read_file("signs"), b"aXb done end");
}

#[tokio::test]
async fn an_edit_that_is_not_exact_changes_nothing_and_says_why() {
    let executor = start_executor();
    let content = "one two\none two\n";
    executor.write_file("f", content);
    let mut client = executor.connect().await;
    let mut edit = async |input: serde_json::Value| {
        let mut whole = json!({"path": "f", "new_string": "X"});
        whole
            .as_object_mut()
            .unwrap()
            .extend(input.as_object().unwrap().clone());
        client.call("edit", whole).await
    };
    edit(json!({"old_string": "three"}))
        .await
        .check_tool_error(&["f", "not"]);
    edit(json!({"old_string": "one"}))
        .await
        .check_tool_error(&["2"]);
    edit(json!({"old_string": "one", "expected_sha256": "0".repeat(64)}))
        .await
        .check_tool_error(&["f"]);
    assert_eq!(executor.read_file("f"), content.as_bytes());
    let reply = edit(json!({"old_string": "one", "replace_all": true})).await;
    assert!(
        reply
            .check_done()
            .data()
            .starts_with("Edited f: 2 replacement"),
        "{}",
        reply.data()
    );
    assert_eq!(reply.details()["lines"], json!([1, 2]));
    assert_eq!(executor.read_file("f"), b"X two\nX two\n");
}

#[tokio::test]
async fn a_workspace_that_was_deleted_is_not_taken_for_an_empty_one() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    std::fs::create_dir(executor.workspace().join("sub")).unwrap();
    client.bash("true").await.check_done();
    std::fs::remove_dir_all(executor.workspace()).unwrap();
    for (name, input) in [
        ("list_files", json!({})),
        ("list_files", json!({"path": executor.workspace()})),
        ("glob", json!({"pattern": "**/*"})),
        ("grep", json!({"pattern": "x"})),
        ("write", json!({"path": "a", "content": "x"})),
        ("bash", json!({"command": "true"})),
    ] {
        let reply = client.call(name, input).await;
        assert!(
            reply.is_error() && reply.data().contains("deleted"),
            "{name}: {:#}",
            reply.0
        );
    }
}
