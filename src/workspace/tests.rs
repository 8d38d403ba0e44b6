//! Places for blocking jobs, locks, leftovers and rollback.

use std::io::{self, Cursor};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::in_place::{OverwriteError, Surface, overwrite};
use super::locks::Key;
use super::*;
use crate::stop::{Stop, StopCause};

const SOON: Duration = Duration::from_secs(10);

fn start_workspace(limits: Limits) -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(dir.path(), &Arc::new(limits)).unwrap();
    (dir, workspace)
}

fn one_place() -> Limits {
    Limits {
        max_blocking_jobs: 1,
        blocking_grace: Duration::from_millis(50),
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_a_place_and_a_hung_job_keeps_its_own() {
    let (_dir, workspace) = start_workspace(one_place());
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let stop = Stop::new();
    let hung = {
        let (workspace, stop) = (workspace.below(".").unwrap(), stop.clone());
        tokio::spawn(async move {
            workspace
                .run_blocking(&stop, move |_| gate.recv().is_ok())
                .await
        })
    };
    while workspace.0.shared.jobs.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let waiting_stop = Stop::new();
    let waiting = {
        let (workspace, stop) = (workspace.clone(), waiting_stop.clone());
        tokio::spawn(async move { workspace.run_blocking(&stop, |_| ()).await })
    };
    waiting_stop.trigger(StopCause::Cancelled);
    let ended = timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(ended, Err(Stopped(StopCause::Cancelled)));
    stop.trigger(StopCause::Deadline);
    let ended = timeout(SOON, hung).await.unwrap().unwrap();
    assert_eq!(ended, Err(Stopped(StopCause::Deadline)));
    assert_eq!(
        workspace.0.shared.jobs.available_permits(),
        0,
        "the hung job keeps its place"
    );
    drop(open);
    let unstopped = Stop::new();
    let free = workspace.run_blocking(&unstopped, |_| 7);
    assert_eq!(timeout(SOON, free).await.unwrap(), Ok(7));
}

#[tokio::test]
async fn a_job_that_ends_after_the_stop_still_counts() {
    let (_dir, workspace) = start_workspace(Limits::default());
    let stop = Stop::new();
    let begun = Arc::new(AtomicBool::new(false));
    let running = {
        let (workspace, stop, begun) = (workspace.clone(), stop.clone(), Arc::clone(&begun));
        tokio::spawn(async move {
            let job = move |stop: &Stop| {
                begun.store(true, Ordering::SeqCst);
                while stop.cause().is_none() {
                    std::thread::yield_now();
                }
                "partial"
            };
            workspace.run_blocking(&stop, job).await
        })
    };
    while !begun.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    stop.trigger(StopCause::Cancelled);
    assert_eq!(
        timeout(SOON, running).await.unwrap().unwrap(),
        Ok("partial")
    );
}

#[tokio::test]
async fn a_panic_in_a_job_is_the_callers_panic() {
    let (_dir, workspace) = start_workspace(one_place());
    let caller = {
        let workspace = workspace.clone();
        tokio::spawn(async move {
            let job = |_: &Stop| -> u8 { panic!("in the job") };
            workspace.run_blocking(&Stop::new(), job).await
        })
    };
    let error = caller.await.unwrap_err();
    assert_eq!(
        error.into_panic().downcast_ref::<&str>(),
        Some(&"in the job")
    );
    assert_eq!(
        workspace.run_blocking(&Stop::new(), |_| 1).await,
        Ok(1),
        "its place is free"
    );
}

#[tokio::test]
async fn locks_leave_nothing_behind() {
    let (_dir, workspace) = start_workspace(Limits::default());
    let locks = &workspace.0.shared.locks;
    let key = Key::File {
        device: 1,
        inode: 2,
    };
    let stop = Stop::new();
    let held = locks.try_lock(&key).unwrap();
    assert!(locks.try_lock(&key).is_none());
    let waiting = {
        let (locks, key, stop) = (Arc::clone(locks), key.clone(), stop.clone());
        tokio::spawn(async move { locks.lock(&key, &stop).await.map(drop) })
    };
    tokio::task::yield_now().await;
    assert_eq!(locks.len(), 1);
    stop.trigger(StopCause::Cancelled);
    assert!(timeout(SOON, waiting).await.unwrap().unwrap().is_err());
    let next = {
        let (locks, key) = (Arc::clone(locks), key.clone());
        tokio::spawn(async move { locks.lock(&key, &Stop::new()).await.map(drop) })
    };
    tokio::task::yield_now().await;
    drop(held);
    timeout(SOON, next).await.unwrap().unwrap().unwrap();
    assert_eq!(locks.len(), 0);
}

#[tokio::test]
async fn waiting_for_a_lock_takes_no_place() {
    let (dir, workspace) = start_workspace(one_place());
    let name = dir.path().metadata().unwrap();
    let key = Key::Name {
        device: name.dev(),
        directory: name.ino(),
        name: b"f".to_vec(),
    };
    let held = workspace.0.shared.locks.try_lock(&key).unwrap();
    let change = {
        let workspace = workspace.clone();
        tokio::spawn(async move {
            let job = |_: &Stop, target: &Target| Attempt::Done(target.spelled());
            let stop = Stop::new();
            workspace
                .change_file(&stop, "./f".to_owned(), Parents::Make, job)
                .await
                .unwrap()
        })
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let unstopped = Stop::new();
    let other = workspace.run_blocking(&unstopped, |_| 1);
    assert_eq!(timeout(SOON, other).await.unwrap(), Ok(1));
    assert!(!change.is_finished());
    let stopped = Stop::new();
    let waiting = {
        let (workspace, stop) = (workspace.clone(), stopped.clone());
        let job = |_: &Stop, _: &Target| Attempt::Done(());
        tokio::spawn(async move {
            let path = "f".to_owned();
            workspace.change_file(&stop, path, Parents::Make, job).await
        })
    };
    stopped.trigger(StopCause::Deadline);
    let ended = timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(matches!(
        ended,
        Err(ChangeError::Stopped(StopCause::Deadline))
    ));
    drop(held);
    assert_eq!(timeout(SOON, change).await.unwrap().unwrap(), "./f");
    assert_eq!(workspace.0.shared.locks.len(), 0);
}

#[test]
fn only_unlocked_files_of_the_exact_name_are_leftovers_however_new() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("sub/.git")).unwrap();
    let make = |name: &str| {
        let path = dir.path().join(name);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        (path, file)
    };
    let (unreadable, file) = make(".bma-tmp-fedcba9876543210");
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o200))
        .unwrap();
    drop(file);
    let gone = [
        unreadable,
        make(".bma-tmp-0123456789abcdef").0,
        make("sub/.git/.bma-tmp-00000000000000ff").0,
    ];
    let (locked, lock) = make(".bma-tmp-1111111111111111");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let kept = [
        locked,
        make(".bma-tmp-2222222222222222x").0,
        make(".bma-tmp-333333333333333G").0,
        make("sub/x.bma-tmp-4444444444444444").0,
    ];
    let workspace = Workspace::open(dir.path(), &Arc::new(Limits::default())).unwrap();
    assert_eq!(workspace.remove_leftovers(SOON, &Stop::new()), 3);
    assert!(gone.iter().all(|path| !path.exists()));
    assert!(kept.iter().all(|path| path.exists()));
    let stopped = Stop::new();
    stopped.trigger(StopCause::Shutdown);
    assert_eq!(workspace.remove_leftovers(SOON, &stopped), 0);
}

/// Takes a number of writes, then fails some.
struct Failing {
    content: Mutex<Vec<u8>>,
    fails: Mutex<Vec<bool>>,
}

#[expect(clippy::unwrap_in_result, reason = "a poisoned lock fails the test")]
impl Surface for Failing {
    fn put(&self, block: &[u8], at: u64) -> io::Result<()> {
        let mut fails = self.fails.lock().unwrap();
        let half = if fails.pop().unwrap_or(false) {
            block.len() / 2
        } else {
            block.len()
        };
        let mut content = self.content.lock().unwrap();
        let at = usize::try_from(at).unwrap();
        let end = at + half;
        if content.len() < end {
            content.resize(end, 0);
        }
        content[at..end].copy_from_slice(&block[..half]);
        if half < block.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.content
            .lock()
            .unwrap()
            .truncate(usize::try_from(len).unwrap());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_write_in_place_that_fails_brings_the_old_content_back() {
    let old = b"the old content".to_vec();
    let new = vec![b'n'; 3 * 1024 * 1024];
    let run = |fails: Vec<bool>| {
        let surface = Failing {
            content: Mutex::new(old.clone()),
            fails: Mutex::new(fails),
        };
        let mut copy = Cursor::new(old.clone());
        copy.set_position(old.len() as u64);
        let result = overwrite(&surface, &new, &mut copy, old.len() as u64);
        (result, surface.content.into_inner().unwrap())
    };
    let (result, content) = run(Vec::new());
    assert!(result.is_ok() && content == new);
    let (result, content) = run(vec![true, false]);
    assert!(matches!(result, Err(OverwriteError::RolledBack(_))));
    assert_eq!(content, old);
    let (result, _) = run(vec![true, true]);
    assert!(matches!(result, Err(OverwriteError::Torn(_))));
}

#[test]
fn a_workspace_is_a_directory_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&file)
        .unwrap();
    let limits = Arc::new(Limits::default());
    for path in [file.as_path(), &dir.path().join("absent")] {
        let error = Workspace::open(path, &limits).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()));
    }
}
