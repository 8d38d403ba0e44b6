//! `glob`, `grep` and `list_files` through the socket (case GREP-03).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::start_executor;

#[tokio::test]
async fn a_faulty_regex_is_an_error_and_no_match_is_none() {
    let executor = start_executor();
    executor.write_file("a.txt", "some text\n");
    executor.write_file("b.txt", "a".repeat(50_000) + "!\n");
    let mut client = executor.connect().await;
    for pattern in ["[[", "foo(", "*x", "(?<=a)b", r"\p{Nope}", "a{99999999}"] {
        client
            .call("grep", json!({"pattern": pattern}))
            .await
            .check_tool_error(&[pattern]);
    }
    for faulty in ["a)|(b", "a)(b", "\\", "("] {
        let reply = client.call("grep", json!({"pattern": faulty})).await;
        reply.check_tool_error(&["not a valid regular expression"]);
        assert!(
            !reply.data().contains("(?:"),
            "the position is that of another text: {}",
            reply.data()
        );
    }
    let reply = client
        .call("grep", json!({"pattern": "(?x) some # a comment"}))
        .await;
    assert_eq!(reply.check_done().data().trim_end(), "a.txt:1:some text");
    client
        .call("grep", json!({"pattern": ""}))
        .await
        .check_failed("invalid_input", &["pattern"]);
    let reply = client
        .call("grep", json!({"pattern": "zzz-not-there"}))
        .await;
    assert_eq!(
        (
            &reply.check_done().details()["total"],
            &reply.details()["empty"]
        ),
        (&json!(0), &json!(true))
    );
    let begun = Instant::now();
    client
        .call("grep", json!({"pattern": "(a+)+$"}))
        .await
        .check_done();
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn grep_gives_path_line_and_text_in_order() {
    let executor = start_executor();
    for (name, content) in [
        ("b.txt", "needle\nx\nneedle 2\n"),
        ("a/c.rs", "x\n  needle\n"),
        ("a.md", "Needle\n"),
    ] {
        executor.write_file(name, content);
    }
    let mut client = executor.connect().await;
    let reply = client.call("grep", json!({"pattern": "needle"})).await;
    assert_eq!(
        reply.check_done().data().trim_end(),
        "a/c.rs:2:  needle\nb.txt:1:needle\nb.txt:3:needle 2"
    );
    assert_eq!(
        reply.details()["hits"][0],
        json!({"path": "a/c.rs", "line": 2, "column": 3})
    );
    for (input, data) in [
        (
            json!({"pattern": "needle", "glob": "*.rs"}),
            "a/c.rs:2:  needle",
        ),
        (
            json!({"pattern": "needle", "path": "a"}),
            "a/c.rs:2:  needle",
        ),
        (
            json!({"pattern": "needle", "path": "b.txt"}),
            "b.txt:1:needle\nb.txt:3:needle 2",
        ),
        (
            json!({"pattern": "needle", "case_insensitive": true, "glob": "*.md"}),
            "a.md:1:Needle",
        ),
    ] {
        let reply = client.call("grep", input.clone()).await;
        assert_eq!(reply.check_done().data().trim_end(), data, "{input}");
    }
    client
        .call("grep", json!({"pattern": "needle", "path": "missing"}))
        .await
        .check_tool_error(&["missing"]);
}

#[tokio::test]
async fn glob_gives_paths_in_order_and_says_what_it_left_out() {
    let executor = start_executor();
    for name in [
        "b.rs",
        "a/c.rs",
        "a/b/d.rs",
        "a.txt",
        "target/e.rs",
        ".hidden.rs",
    ] {
        executor.write_file(name, "x");
    }
    executor.write_file(".gitignore", "target/\n");
    let mut client = executor.connect().await;
    for (pattern, data) in [
        ("*.rs", ".hidden.rs\nb.rs"),
        ("**/*.rs", ".hidden.rs\na/b/d.rs\na/c.rs\nb.rs"),
        ("a/*.rs", "a/c.rs"),
        ("target/*.rs", "target/e.rs"),
        ("*.{txt,none}", "a.txt"),
    ] {
        let reply = client.call("glob", json!({"pattern": pattern})).await;
        assert_eq!(reply.check_done().data().trim_end(), data, "{pattern}");
    }
    let reply = client.call("glob", json!({"pattern": "**/e.rs"})).await;
    assert_eq!(reply.check_done().details()["empty"], true);
    assert!(
        reply.data().contains("ignored") || reply.notes().contains("ignored"),
        "{:#}",
        reply.0
    );
}

#[tokio::test]
async fn list_files_shows_kinds_and_names_a_missing_directory() {
    let executor = start_executor();
    executor.write_file("sub/f", "x");
    executor.write_file("b.txt", "x");
    executor.write_file(".hidden", "x");
    std::os::unix::fs::symlink("b.txt", executor.workspace().join("link")).unwrap();
    let mut client = executor.connect().await;
    let reply = client.call("list_files", json!({})).await;
    assert_eq!(
        reply.check_done().data().trim_end(),
        ".hidden\nb.txt\nlink -> b.txt\nsub/"
    );
    let reply = client.call("list_files", json!({"path": "sub"})).await;
    assert_eq!(reply.check_done().data().trim_end(), "f");
    client
        .call("list_files", json!({"path": "nowhere"}))
        .await
        .check_tool_error(&["nowhere"]);
    client
        .call("list_files", json!({"path": "b.txt"}))
        .await
        .check_tool_error(&["b.txt", "directory"]);
}
