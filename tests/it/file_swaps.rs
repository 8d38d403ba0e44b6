//! A directory and a link that leads outside, exchanged without pause while files are read and written below their names.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::support::{SOON, slow_tests_run, start_executor};

/// Calls on their way at one time.
const AT_ONCE: usize = 32;

/// Exchanges two names until told to stop; says how often.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut times = 0;
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                times += 1;
            }
            times
        });
        Self { stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_is_read_or_changed_while_a_directory_and_a_link_outwards_change_places() {
    let times = if slow_tests_run() { 5_000 } else { 250 };
    let executor = start_executor();
    let outside = executor.workspace().parent().unwrap().join("outside");
    let canary = |name: &str| outside.join(name);
    std::fs::create_dir_all(canary("sub")).unwrap();
    for name in ["f", "sub/f"] {
        std::fs::write(canary(name), "a secret").unwrap();
        executor.write_file(&format!("d/{name}"), "inside");
    }
    std::os::unix::fs::symlink(&outside, executor.workspace().join("l")).unwrap();
    std::fs::create_dir(executor.workspace().join("e")).unwrap();
    std::os::unix::fs::symlink("../../outside", executor.workspace().join("e/l")).unwrap();
    executor.write_file("e/d/f", "inside");
    let at = |name: &str| executor.workspace().join(name);
    let swappers = [
        Swapper::start(at("d"), at("l")),
        Swapper::start(at("e/d"), at("e/l")),
    ];
    let mut client = executor.connect().await;
    let paths = ["d/f", "d/sub/f", "e/d/f", "l/f", "d/new/f", "e/l/f"];
    let (mut done, mut refused) = (0, 0);
    for begin in (0..times).step_by(AT_ONCE) {
        let mut ids = Vec::new();
        for call in begin..times.min(begin + AT_ONCE) {
            let path = paths[call % paths.len()];
            ids.push(client.send_call("read", json!({"path": path})).await);
            let input = json!({"path": path, "content": format!("inside {call}")});
            ids.push(client.send_call("write", input).await);
            if call % 8 == 0 {
                let input = json!({"path": path, "old_string": "secret", "new_string": "changed"});
                ids.push(client.send_call("edit", input).await);
            }
        }
        for id in ids {
            let reply = client.expect_result_within(&id, 3 * SOON).await;
            assert_eq!(reply.outcome(), "succeeded", "{:#}", reply.0);
            let text = reply.0.to_string();
            assert!(!text.contains("a secret"), "the outside was read: {text}");
            done += u32::from(!reply.is_error());
            refused += u32::from(reply.is_error());
        }
    }
    let exchanged = swappers.map(Swapper::stop);
    println!("{done} done and {refused} refused while names changed places {exchanged:?} times");
    assert!(done > 0 && refused > 0 && exchanged.iter().all(|times| *times > 100));
    for name in ["f", "sub/f"] {
        assert_eq!(std::fs::read_to_string(canary(name)).unwrap(), "a secret");
    }
    let entries = std::fs::read_dir(&outside).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "sub"]);
    assert_eq!(std::fs::read_dir(canary("sub")).unwrap().count(), 1);
}
