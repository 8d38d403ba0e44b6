//! One file is changed by one call at a time, whatever its spelling and whichever session asks (case EDIT-05).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::start_executor;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_edits_at_once_by_every_spelling_and_from_two_sessions_are_all_there_in_the_end() {
    let executor = start_executor();
    let numbers: String = (1..=1_000).map(|number| format!("{number}\n")).collect();
    executor.write_file("f", &numbers);
    executor.write_file("sub/x", "");
    std::os::unix::fs::symlink("../f", executor.workspace().join("sub/link")).unwrap();
    let path = executor.workspace().join("f");
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let (path, stop) = (path.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let text = std::fs::read_to_string(&path).unwrap();
                assert_eq!(text.lines().count(), 1_000, "a torn state was seen");
                assert!(text.ends_with("\n1000\n") || text.ends_with("\n1000-done\n"));
            }
        })
    };
    let mut clients = [executor.connect().await, executor.connect().await];
    clients[1].session = "s-2".to_owned();
    let absolute = path.to_str().unwrap().to_owned();
    let spellings = [
        "f",
        "./f",
        "sub/../f",
        &absolute,
        "sub/link",
        "sub/./../sub/link",
    ];
    let mut ids = Vec::new();
    for call in 0..50 {
        let number = 20 * call + 20;
        let input = json!({
            "path": spellings[call % spellings.len()],
            "old_string": format!("\n{number}\n"),
            "new_string": format!("\n{number}-done\n"),
        });
        ids.push((call % 2, clients[call % 2].send_call("edit", input).await));
        if call == 25 {
            let input = json!({"path": "other", "content": "beside"});
            ids.push((0, clients[0].send_call("write", input).await));
        }
    }
    for (client, id) in ids {
        clients[client].expect_result(&id).await.check_done();
    }
    stop.store(true, Ordering::Relaxed);
    reader.join().expect("a reader sees whole states only");
    let expected: String = (1..=1_000)
        .map(|number| match number % 20 {
            0 => format!("{number}-done\n"),
            _ => format!("{number}\n"),
        })
        .collect();
    assert_eq!(
        String::from_utf8(executor.read_file("f")).unwrap(),
        expected
    );
    assert_eq!(executor.read_file("other"), b"beside");
}
