//! The journal alone: what it holds after each kind of end.

#![expect(
    clippy::disallowed_methods,
    reason = "a test looks at files from outside, and waits until something has aged"
)]

use std::fs::{OpenOptions, read, write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Digest, Journal, Recovered, RecoveredSession, SessionFacts, SessionJournal, file};
use crate::limits::Limits;
use crate::wire::{SessionId, ToolCallId};

const WORKSPACE: &str = "/the/workspace";
const TOKEN: Digest = [9; 32];

fn open_within(directory: &Path, limits: Limits) -> (Journal, Recovered) {
    let (journal, recovered) = Journal::open(directory, Path::new(WORKSPACE), &Arc::new(limits));
    assert_eq!(journal.lost(), None);
    (journal, recovered)
}

fn open(directory: &Path) -> (Journal, Recovered) {
    open_within(directory, Limits::default())
}

fn facts(id: &str) -> SessionFacts {
    SessionFacts {
        id: SessionId::new(id).unwrap(),
        workspace: None,
        has_env: false,
    }
}

fn call(at: usize) -> ToolCallId {
    ToolCallId::new(&format!("call-{at}")).unwrap()
}

fn digest(at: usize) -> Digest {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&at.to_le_bytes());
    digest
}

fn run(session: &SessionJournal, at: usize, result: &[u8]) {
    session.started(&call(at), &digest(at));
    session.finished(&call(at), &digest(at), Some(result));
}

fn the_session(recovered: Recovered) -> RecoveredSession {
    let mut sessions = recovered.sessions;
    assert_eq!(sessions.len(), 1, "{sessions:#?}");
    sessions.remove(0)
}

type Finished = (String, Option<Vec<u8>>, bool);

/// What a session knows of its calls: finished ones with result and whether delivered, then the interrupted ones.
fn known(session: &RecoveredSession) -> (Vec<Finished>, Vec<String>) {
    let finished = session.finished.iter().map(|one| {
        let result = one.result.as_ref().map(|bytes| bytes.to_vec());
        (one.id.to_string(), result, one.delivered)
    });
    let interrupted = session.interrupted.iter().map(|(id, _)| id.to_string());
    (finished.collect(), interrupted.collect())
}

fn journal_path(directory: &TempDir) -> PathBuf {
    file::path(directory.path())
}

#[test]
fn what_was_noted_is_there_after_each_of_several_restarts() {
    let directory = TempDir::new().unwrap();
    let (journal, recovered) = open(directory.path());
    assert!(recovered.sessions.is_empty());
    let elsewhere = SessionFacts {
        workspace: Some("/the/workspace/sub".to_owned()),
        has_env: true,
        ..facts("s")
    };
    let session = journal.session(elsewhere.clone(), TOKEN);
    run(&session, 1, b"one");
    session.delivered(&call(1));
    run(&session, 2, b"two");
    session.started(&call(3), &digest(3));
    let gone = journal.session(facts("gone"), TOKEN);
    run(&gone, 1, b"no");
    gone.closed();
    gone.delivered(&call(1));
    journal.flush();
    journal.sever();
    for _ in 0..3 {
        let (journal, recovered) = open(directory.path());
        let session = the_session(recovered);
        assert_eq!(
            (&session.facts, &session.tokens[..]),
            (&elsewhere, &[TOKEN][..])
        );
        let one = ("call-1".to_owned(), Some(b"one".to_vec()), true);
        let two = ("call-2".to_owned(), Some(b"two".to_vec()), false);
        assert_eq!(known(&session), (vec![one, two], vec!["call-3".to_owned()]));
        assert_eq!(session.interrupted[0].1, digest(3));
        assert_eq!(session.finished[1].digest, digest(2));
        assert!(session.finished[0].age < Duration::from_mins(1));
        journal.sever();
    }
}

#[test]
fn the_file_is_private() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    run(&journal.session(facts("s"), TOKEN), 1, b"one");
    let mode = std::fs::metadata(journal_path(&directory))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_result_above_its_bound_is_known_to_be_gone() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    let session = journal.session(facts("s"), TOKEN);
    let most = Limits::default().journal_result_bytes;
    run(&session, 1, &vec![b'x'; most]);
    run(&session, 2, &vec![b'x'; most + 1]);
    journal.sever();
    let session = the_session(open(directory.path()).1);
    let lengths: Vec<_> = session
        .finished
        .iter()
        .map(|one| one.result.as_ref().map(bytes::Bytes::len))
        .collect();
    assert_eq!(lengths, [Some(most), None]);
}

#[test]
fn a_tail_torn_at_any_byte_costs_its_own_record_and_nothing_before_or_after() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    let session = journal.session(facts("s"), TOKEN);
    run(&session, 1, b"one");
    session.started(&call(2), &digest(2));
    let before = std::fs::metadata(journal_path(&directory)).unwrap().len();
    session.finished(&call(2), &digest(2), Some(b"the second result"));
    journal.sever();
    let whole = read(journal_path(&directory)).unwrap();
    for cut in usize::try_from(before).unwrap()..whole.len() {
        for tail in [
            &b""[..],
            b"\0\0\0\0\0\0\0\0\0\0\0\0",
            &[0xff; 40],
            &whole[cut + 1..],
        ] {
            let text = [&whole[..cut], tail].concat();
            write(journal_path(&directory), text).unwrap();
            let (journal, recovered) = open(directory.path());
            let session = the_session(recovered);
            let (finished, interrupted) = known(&session);
            let one = ("call-1".to_owned(), Some(b"one".to_vec()), false);
            assert_eq!(
                (finished, interrupted),
                (vec![one.clone()], vec!["call-2".to_owned()]),
                "cut at {cut}"
            );
            // What is written behind the cut is read next time.
            session
                .journal
                .finished(&call(2), &digest(2), Some(b"unknown"));
            journal.sever();
            let two = ("call-2".to_owned(), Some(b"unknown".to_vec()), false);
            let (journal, recovered) = open(directory.path());
            assert_eq!(known(&the_session(recovered)).0, [one, two], "cut at {cut}");
            journal.sever();
        }
    }
}

#[test]
fn garbage_in_the_place_of_the_journal_stops_nothing() {
    let directory = TempDir::new().unwrap();
    for garbage in [
        b"".to_vec(),
        b"\n".to_vec(),
        b"no journal at all\n".to_vec(),
        vec![0; 100_000],
        vec![0xff; 3_000_000],
        b"bma-executor journal 2\n".to_vec(),
    ] {
        write(journal_path(&directory), garbage).unwrap();
        let (journal, recovered) = open(directory.path());
        assert!(recovered.sessions.is_empty());
        run(&journal.session(facts("s"), TOKEN), 1, b"one");
        journal.sever();
        assert_eq!(the_session(open(directory.path()).1).finished.len(), 1);
    }
}

#[test]
fn what_is_no_file_leaves_the_journal_in_memory_and_says_so() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(journal_path(&directory)).unwrap();
    let (journal, recovered) =
        Journal::open(directory.path(), Path::new(WORKSPACE), &Arc::default());
    assert!(recovered.sessions.is_empty());
    let reason = journal.lost().unwrap();
    assert!(
        reason.contains(journal_path(&directory).to_str().unwrap()),
        "{reason}"
    );
    run(&journal.session(facts("s"), TOKEN), 1, b"one");
    journal.flush();
}

#[test]
fn a_journal_of_another_workspace_is_begun_anew() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    run(&journal.session(facts("s"), TOKEN), 1, b"one");
    journal.sever();
    let (_, recovered) = Journal::open(directory.path(), Path::new("/another"), &Arc::default());
    assert!(recovered.sessions.is_empty());
}

#[test]
fn a_file_that_somebody_changes_or_removes_is_given_up_and_that_is_said() {
    for removed in [true, false] {
        let directory = TempDir::new().unwrap();
        let (journal, _) = open(directory.path());
        run(&journal.session(facts("s"), TOKEN), 1, b"one");
        journal.alive();
        assert_eq!(journal.lost(), None);
        if removed {
            std::fs::remove_file(journal_path(&directory)).unwrap();
        } else {
            let file = OpenOptions::new()
                .write(true)
                .open(journal_path(&directory))
                .unwrap();
            file.set_len(10).unwrap();
        }
        journal.alive();
        assert!(journal.lost().unwrap().contains("somebody else"));
    }
}

#[test]
fn sessions_are_forgotten_after_their_time_and_calls_after_theirs() {
    let directory = TempDir::new().unwrap();
    let limits = || Limits {
        finished_ttl: Duration::from_millis(100),
        ..Limits::default()
    };
    let (journal, _) = open_within(directory.path(), limits());
    let session = journal.session(facts("s"), TOKEN);
    run(&session, 1, b"delivered");
    session.delivered(&call(1));
    run(&session, 2, b"waits");
    journal.flush();
    journal.sever();
    std::thread::sleep(Duration::from_millis(150));
    let session = the_session(open_within(directory.path(), limits()).1);
    let two = ("call-2".to_owned(), Some(b"waits".to_vec()), false);
    assert_eq!(
        known(&session).0,
        [two],
        "what no harness has is not forgotten"
    );
    std::thread::sleep(Duration::from_millis(150));
    let brief = Limits {
        session_ttl: Duration::from_millis(100),
        ..Limits::default()
    };
    assert!(open_within(directory.path(), brief).1.sessions.is_empty());
}

#[test]
fn bounds_of_number_and_bytes_are_held_and_what_waits_is_kept_longest() {
    let directory = TempDir::new().unwrap();
    let limits = || Limits {
        max_finished_calls: 10,
        max_kept_results: 3,
        result_memory_bytes: 50,
        ..Limits::default()
    };
    let (journal, _) = open_within(directory.path(), limits());
    let session = journal.session(facts("s"), TOKEN);
    for at in 0..40 {
        run(&session, at, b"0123456789");
        if at >= 5 {
            session.delivered(&call(at));
        }
    }
    journal.flush();
    journal.sever();
    let session = the_session(open_within(directory.path(), limits()).1);
    let kept: Vec<_> = known(&session)
        .0
        .into_iter()
        .map(|(id, result, delivered)| (id, result.is_some(), delivered))
        .collect();
    let expected: Vec<_> = [
        (0, false, false),
        (1, false, false),
        (2, true, false),
        (3, true, false),
        (4, true, false),
    ]
    .into_iter()
    .chain((35..40).map(|at| (at, at >= 38, true)))
    .map(|(at, whole, delivered)| (format!("call-{at}"), whole, delivered))
    .collect();
    assert_eq!(kept, expected);
}

#[test]
fn a_late_record_of_a_closed_session_does_not_fall_to_the_next_of_its_name() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    let first = journal.session(facts("s"), TOKEN);
    run(&first, 1, b"first");
    first.closed();
    let second = journal.session(facts("s"), [8; 32]);
    run(&second, 1, b"second");
    first.delivered(&call(1));
    first.started(&call(7), &digest(7));
    first.token([7; 32]);
    journal.flush();
    journal.sever();
    let session = the_session(open(directory.path()).1);
    assert_eq!(session.tokens, [[8; 32]]);
    let one = ("call-1".to_owned(), Some(b"second".to_vec()), false);
    assert_eq!(known(&session), (vec![one], Vec::new()));
}

#[test]
fn a_session_that_was_opened_and_used_by_nobody_is_there_too() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    let session = journal.session(facts("s"), TOKEN);
    session.token([8; 32]);
    journal.flush();
    journal.sever();
    assert_eq!(
        the_session(open(directory.path()).1).tokens,
        [TOKEN, [8; 32]]
    );
}

/// Writes into a file that is written anew again and again, and stops at a moment of chance.
#[test]
fn the_file_is_written_anew_under_calls_and_nothing_is_lost() {
    for round in 0..6 {
        let directory = TempDir::new().unwrap();
        let limits = Limits {
            journal_slack_bytes: 4_000,
            max_finished_calls: 100,
            ..Limits::default()
        };
        let (journal, _) = open_within(directory.path(), limits.clone());
        // Held, so that its number is not given to another file.
        let held = std::fs::File::open(journal_path(&directory)).unwrap();
        let first = held.metadata().unwrap().ino();
        let calls = 300 + 50 * round;
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let session = journal.session(facts(&format!("s-{thread}")), TOKEN);
                std::thread::spawn(move || {
                    for at in 0..calls {
                        run(&session, at, format!("result {at}").as_bytes());
                        if at >= 5 {
                            session.delivered(&call(at));
                        }
                    }
                    session.started(&call(calls), &digest(calls));
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        journal.flush();
        assert_eq!(journal.lost(), None);
        journal.sever();
        let inode = |path| std::fs::metadata(path).unwrap().ino();
        assert_ne!(
            inode(journal_path(&directory)),
            first,
            "it was never written anew"
        );
        let (_, recovered) = open_within(directory.path(), limits);
        assert_eq!(recovered.sessions.len(), 4);
        for session in recovered.sessions {
            let (finished, interrupted) = known(&session);
            assert_eq!(interrupted, [format!("call-{calls}")]);
            let waiting = finished.iter().filter(|(_, _, delivered)| !delivered);
            assert_eq!(waiting.count(), 5);
            let last = format!("call-{}", calls - 1);
            assert_eq!(finished.last().map(|(id, _, _)| id), Some(&last));
            assert!((100..=205).contains(&finished.len()), "{}", finished.len());
        }
    }
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib / 1_024.0
}

/// Many calls in a hundred sessions: file, memory and the next start stay small. The bench measures
/// a million of them.
#[test]
fn calls_without_end_leave_a_small_file_and_a_quick_start() {
    let calls = 50_000;
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    let sessions: Vec<_> = (0..100)
        .map(|at| journal.session(facts(&format!("s-{at}")), TOKEN))
        .collect();
    let before = resident_mib();
    let (mut longest, mut most_memory) = (0, before);
    let result = [b'r'; 300];
    let begun = Instant::now();
    for at in 0..calls {
        let session = &sessions[at % sessions.len()];
        run(session, at, &result);
        session.delivered(&call(at));
        if at % 5_000 == 0 {
            longest = longest.max(std::fs::metadata(journal_path(&directory)).unwrap().len());
            most_memory = most_memory.max(resident_mib());
        }
    }
    let took = begun.elapsed();
    assert_eq!(journal.lost(), None);
    journal.flush();
    journal.sever();
    let begun = Instant::now();
    let (_, recovered) = open(directory.path());
    let start = begun.elapsed();
    let held: usize = recovered
        .sessions
        .iter()
        .map(|one| one.finished.len())
        .sum();
    println!(
        "{calls} calls in {took:?} ({:?} each); the file was at most {} MiB; memory rose by {:.0} MiB at most; {held} calls are known after a start of {start:?}",
        took / u32::try_from(calls).unwrap(),
        longest >> 20,
        most_memory - before,
    );
    let bound = Limits::default().max_remembered_calls;
    assert!(held <= bound, "{held} calls are remembered");
    assert!(longest < 160 << 20, "the file was {longest} bytes long");
    assert!(
        most_memory - before < 200.0,
        "memory rose by {most_memory} MiB"
    );
    assert!(start < Duration::from_secs(10), "the start took {start:?}");
}

#[test]
fn a_record_in_the_middle_that_is_damaged_cuts_the_rest_off() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    let session = journal.session(facts("s"), TOKEN);
    run(&session, 1, b"one");
    let place = std::fs::metadata(journal_path(&directory)).unwrap().len();
    run(&session, 2, b"two");
    run(&session, 3, b"three");
    journal.sever();
    let file = OpenOptions::new()
        .write(true)
        .open(journal_path(&directory))
        .unwrap();
    file.write_all_at(b"?", place + 20).unwrap();
    let (finished, interrupted) = known(&the_session(open(directory.path()).1));
    assert_eq!((finished.len(), interrupted.len()), (1, 0));
}
