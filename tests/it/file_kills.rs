//! The daemon killed in the middle of `write` and `edit` (case WRITE-02): at any moment the target is wholly old or wholly
//! new, and what is left beside it goes at the next start.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::support::binary::start_server;
use crate::support::{SOON, slow_tests_run};

const RUNS: u32 = 100;
/// About the time from the first byte of a new content to its name.
const WRITING: Duration = Duration::from_millis(30);
const ARGUMENTS: [&str; 3] = ["--no-key", "--log-level", "warn"];

/// Names of unfinished writes in a directory.
fn leftovers(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".bma-tmp")).collect()
}

/// Fails unless a directory comes to hold no leftovers.
async fn expect_no_leftovers(directory: &Path) {
    let until = Instant::now() + SOON;
    loop {
        let left = leftovers(directory);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "still there: {left:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until new content is being written beside a file, or already stands in its place.
fn expect_leftover(directory: &Path, target: &Path, before: &str) {
    let until = Instant::now() + SOON;
    while leftovers(directory).is_empty() {
        let is_old = std::fs::metadata(target).unwrap().len() == before.len() as u64;
        if !is_old {
            return;
        }
        assert!(Instant::now() < until, "nothing was written");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Reads a file again and again; stopped, says how often it was found whole.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Reader {
    fn start(path: std::path::PathBuf, contents: [Arc<str>; 2]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut looks = 0;
            while !stopped.load(Ordering::Relaxed) {
                let found = std::fs::read(&path).unwrap();
                let whole = contents.iter().any(|content| content.as_bytes() == found);
                assert!(
                    whole,
                    "a reader saw {} bytes of neither content",
                    found.len()
                );
                looks += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            looks
        });
        Self { stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a reader saw whole files only")
    }
}

/// A number that differs from call to call and from run to run.
fn random(below: u64) -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    static CALLS: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(CALLS.fetch_add(1, Ordering::Relaxed)) % below.max(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_wholly_old_or_wholly_new_whenever_the_daemon_is_killed() {
    if !slow_tests_run() {
        return;
    }
    let mut server = start_server(&ARGUMENTS);
    let target = server.workspace().join("f");
    // Two contents of different length, each made of the other by one edit.
    let contents: [Arc<str>; 2] =
        ["old line\n", "a new line\n"].map(|line| line.repeat(600_000).into());
    std::fs::write(&target, &*contents[0]).unwrap();
    let reader = Reader::start(target.clone(), contents.clone());
    let (mut held, mut left, mut changed) = (0, 0, 0);
    let mut usual = Duration::ZERO;
    for run in 0..RUNS {
        if run > 0 {
            server.start_again(&ARGUMENTS);
        }
        expect_no_leftovers(&server.workspace()).await;
        let before = usize::from(std::fs::read(&target).unwrap() != contents[0].as_bytes());
        let after = 1 - before;
        let mut client = server.connect().await;
        // The daemon remembers the ids of a session beyond its own death.
        client.session = format!("s-{run}");
        let lines = ["old line\n", "a new line\n"];
        let (name, input) = if run % 2 == 0 {
            ("write", json!({"path": "f", "content": &*contents[after]}))
        } else {
            let (old, new) = (lines[before], lines[after]);
            (
                "edit",
                json!({"path": "f", "old_string": old, "new_string": new, "replace_all": true}),
            )
        };
        let id = client.send_call(name, input).await;
        let sent = Instant::now();
        if run < 2 {
            // These two are let end, to know how long it takes.
            client.expect_result(&id).await.check_done();
            usual = usual.max(sent.elapsed());
        } else {
            // Half of the moments lie anywhere, half in the time in which the new content is written.
            let mut longest = usual;
            if run % 4 < 2 {
                expect_leftover(&server.workspace(), &target, &contents[before]);
                longest = WRITING;
            }
            let pause = random(u64::try_from(longest.as_micros()).unwrap());
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
        kill_process(server.daemon(), Signal::KILL).unwrap();
        let (code, _) = server.expect_end(SOON);
        assert_eq!(code, Some(137));
        let found = std::fs::read(&target).unwrap();
        let now = contents
            .iter()
            .position(|content| content.as_bytes() == found);
        let now =
            now.unwrap_or_else(|| panic!("run {run}: {} bytes of neither content", found.len()));
        held += u32::from(now == before);
        changed += u32::from(now == after);
        left += u32::from(!leftovers(&server.workspace()).is_empty());
    }
    server.start_again(&ARGUMENTS);
    expect_no_leftovers(&server.workspace()).await;
    let looks = reader.stop();
    println!(
        "{RUNS} runs: {held} old, {changed} new, {left} with leftovers; {looks} whole files read meanwhile; {usual:?} each"
    );
    assert!(
        held > 5 && changed > 5 && left > 5,
        "the moments were not spread: {held} old, {changed} new, {left} with leftovers"
    );
}
