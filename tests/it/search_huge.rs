//! Searches in a tree of a million files: stopped in time, idle afterwards, within their descriptors and memory
//! (case GLOB-04).

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, mkdir, open, openat};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::binary::{Server, start_large_scratch, start_server_in};
use crate::support::{Client, Reply, slow_tests_run};

const DIRECTORIES: usize = 20;
const FILES_EACH: usize = 50_000;

fn lay_out(big: &Path) {
    mkdir(big, Mode::RWXU).unwrap();
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for directory in (half..DIRECTORIES).step_by(2) {
                    let path = big.join(format!("dir{directory}"));
                    mkdir(&path, Mode::RWXU).unwrap();
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                    let dir = open(&path, flags, Mode::empty()).unwrap();
                    for file in 0..FILES_EACH {
                        let name = format!("f{file}.dat");
                        openat(&dir, name, OFlags::WRONLY | OFlags::CREATE, Mode::RUSR).unwrap();
                    }
                }
            });
        }
    });
    std::fs::create_dir(big.join("dir7/sub")).unwrap();
    std::fs::write(big.join("dir7/top.txt"), "zzz\n").unwrap();
    std::fs::write(big.join("dir7/sub/x.txt"), "zzz\n").unwrap();
}

/// Does something and holds the server to 64 open files and directories of its workspace meanwhile.
fn check_descriptors(server: &Server, work: impl AsyncFnOnce()) {
    let (done, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    let fds = format!("/proc/{}/fd", server.daemon().as_raw_nonzero());
    let workspace = server.workspace();
    let open = || {
        // The daemon shuts its descriptors away from other processes of an ordinary user.
        let fds = std::fs::read_dir(&fds).into_iter().flatten().flatten();
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|target| target.starts_with(&workspace))
            .count()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Stopped, it cannot open one while another is counted.
                kill_process(server.daemon(), Signal::STOP).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                most.fetch_max(open(), Ordering::Relaxed);
                kill_process(server.daemon(), Signal::CONT).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work()));
        done.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner();
    println!("at most {most} descriptors were seen open");
    assert!(most <= 64, "{most} descriptors were open");
    if rustix::process::geteuid().is_root() {
        assert!(most > 0, "nothing was seen open");
    } else {
        println!("not run as root: the daemon's descriptors could not be counted");
    }
}

/// A tree in which a walk has something waiting on every level.
fn lay_out_comb(root: &Path) {
    let mut at = root.to_owned();
    for level in 0..150 {
        for tooth in 0..20 {
            let path = at.join(format!("t{tooth}"));
            std::fs::create_dir_all(path.join("inner")).unwrap();
            std::fs::write(path.join("inner/f.txt"), format!("needle {level}\n")).unwrap();
        }
        at.push("t9");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_keeps_few_descriptors_however_much_is_waiting() {
    let scratch = start_large_scratch();
    lay_out_comb(&scratch.path().join("ws"));
    let server = start_server_in(scratch, &["--no-key"]);
    let mut client = server.connect().await;
    client.bash("true").await.check_done();
    server.expect_idle().await;
    check_descriptors(&server, async || {
        for _ in 0..10 {
            let found = client.call("grep", json!({"pattern": "needle"})).await;
            assert_eq!(found.check_done().details()["total"], 150 * 20);
            let found = client.call("glob", json!({"pattern": "**/*.txt"})).await;
            assert_eq!(found.check_done().details()["total"], 150 * 20);
        }
    });
}

/// Makes a call that is stopped 1,000 or 300 ms after its start, and holds the answer to it.
async fn check_stops(server: &Server, client: &mut Client, name: &str, input: Value) {
    for (stop, after) in [("timed_out", 1_000), ("cancelled", 300)] {
        let begun = Instant::now();
        let further = if stop == "timed_out" {
            json!({"deadline_ms": after})
        } else {
            json!({})
        };
        let id = client.send_call_with(name, input.clone(), further).await;
        if stop == "cancelled" {
            tokio::time::sleep(Duration::from_millis(after)).await;
            client.send_cancel(&id).await;
        }
        let reply = client.expect_result(&id).await;
        let taken = begun.elapsed();
        println!(
            "{name} {stop} after {after} ms: answered after {taken:?} as {}",
            reply.outcome()
        );
        assert!(
            taken < Duration::from_millis(after + 500),
            "{name}: {taken:?}"
        );
        if reply.outcome() != "succeeded" {
            assert_eq!(reply.outcome(), stop, "{:#}", reply.0);
            assert_eq!(reply.details()["partial"], true, "{:#}", reply.0);
            assert!(
                format!("{}{}", reply.data(), reply.notes()).contains("partial"),
                "{:#}",
                reply.0
            );
        }
        server.expect_idle().await;
    }
}

async fn check_soon(client: &mut Client, input: Value, data: &str) {
    let begun = Instant::now();
    let reply: Reply = client.call("glob", input.clone()).await;
    assert_eq!(reply.check_done().data(), data, "{input}");
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "{input}: {:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_files_are_searched_within_bounds() {
    if !slow_tests_run() {
        return;
    }
    let scratch = start_large_scratch();
    lay_out(&scratch.path().join("ws/big"));
    let server = start_server_in(scratch, &["--no-key"]);
    let mut client = server.connect().await;
    client.bash("true").await.check_done();
    server.expect_idle().await;
    let idle = server.memory_mib("VmRSS");

    let none = json!({"pattern": "**/*.none", "path": "big"});
    check_stops(&server, &mut client, "glob", none).await;
    let zzz = json!({"pattern": "zzz", "path": "big"});
    check_stops(&server, &mut client, "grep", zzz).await;
    let id = client
        .send_call("glob", json!({"pattern": "**/*.dat"}))
        .await;
    let all = client
        .expect_result_within(&id, Duration::from_secs(30))
        .await;
    assert_eq!(
        all.check_done().details()["total"],
        DIRECTORIES * FILES_EACH
    );
    let peak = server.memory_mib("VmHWM");
    println!("{idle:.1} MiB idle, {peak:.1} MiB at most");
    assert!(peak - idle <= 64.0, "{idle} MiB idle, {peak} MiB at most");

    let absolute = format!("{}/big/dir7/*.txt", server.workspace().display());
    check_soon(
        &mut client,
        json!({"pattern": absolute, "path": "/"}),
        "big/dir7/top.txt",
    )
    .await;
    check_soon(
        &mut client,
        json!({"pattern": "big/dir7/sub/*.txt"}),
        "big/dir7/sub/x.txt",
    )
    .await;
    let below = json!({"pattern": "dir7/sub/*.txt", "path": "big"});
    check_soon(&mut client, below, "big/dir7/sub/x.txt").await;
}
