//! A deterministic simulation of sessions, calls and lost connections (protocol sections 6 and 7).
//!
//! A model of a harness and the real session loop (`dispatch::Hub` behind `net::serve_connection`) run on one thread on
//! a paused clock, joined by lines with valves: bytes are delayed and held back, lines are cut at any byte or
//! forgotten while bytes are under way, calls are sent again, on other connections too, and the executor is killed or
//! stopped and started again over its journal. Everything is drawn from one
//! seed. The tools count, so that the model knows what was run.
//!
//! What must hold: a call is run at most once; it is answered once where it ends, once for each time that its session goes
//! to another connection before the answer was acknowledged, and once for each time that it was sent again; an answer is
//! the same each time; nothing that was not called is answered; nothing that was run stays without an answer.
//!
//! A failure prints its seed and what happened. `SIMULATION_SEED=N` runs that seed alone and prints the same;
//! `SIMULATION_SCHEDULES=N` runs so many. `RUN_SLOW_TESTS=1` runs 10,000.

mod daemon;
mod ending;
mod harness;
mod line;
mod model;
mod random;
mod schedule;
mod steps;

use daemon::{Ground, start_ground};
use schedule::{Broken, Ended, Schedule};

/// Steps of one schedule before its end.
const STEPS: usize = 30;

/// What several schedules came to.
#[derive(Debug, Default)]
struct Sum {
    executed: usize,
    connections: usize,
    lives: usize,
}

fn run(ground: &Ground, seed: u64, broken: Broken, tracing: bool) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let schedule = async {
        Schedule::new(ground, seed, broken, tracing)
            .run(STEPS)
            .await
    };
    runtime.block_on(schedule)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs each of the seeds; fails with the first that breaks the promise.
fn check_seeds(seeds: impl Iterator<Item = u64>) -> Sum {
    let ground = start_ground();
    let mut sum = Sum::default();
    for seed in seeds {
        let ended = run(&ground, seed, Broken::Nothing, false);
        if let Some(fault) = ended.fault {
            let again = run(&ground, seed, Broken::Nothing, true);
            let trace = again.trace.join("\n");
            panic!(
                "SIMULATION_SEED={seed} shows it again: {fault} (again: {:?})\n{trace}",
                again.fault
            );
        }
        sum.executed += ended.executed;
        sum.connections += ended.connections;
        sum.lives += ended.lives;
    }
    sum
}

#[test]
fn each_call_is_run_at_most_once_and_answered_exactly_once_whatever_the_line_does() {
    if let Some(seed) = number("SIMULATION_SEED") {
        let ended = run(&start_ground(), seed, Broken::Nothing, true);
        println!("{}", ended.trace.join("\n"));
        assert_eq!(ended.fault, None, "seed {seed}");
        return;
    }
    let slow = std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1");
    let schedules = number("SIMULATION_SCHEDULES").unwrap_or(if slow { 10_000 } else { 1_000 });
    // Two threads, each with schedules of its own.
    let halves = [0, 1].map(|half| {
        std::thread::spawn(move || check_seeds((0..schedules).filter(|seed| seed % 2 == half)))
    });
    for half in halves {
        match half.join() {
            Ok(sum) => println!("of {schedules} schedules a half: {sum:?}"),
            Err(fault) => std::panic::resume_unwind(fault),
        }
    }
}

/// Fails unless some schedule sees that something is broken.
#[track_caller]
fn check_seen(broken: Broken, words: &[&str]) {
    let ground = start_ground();
    let faults: Vec<String> = (0..200)
        .filter_map(|seed| run(&ground, seed, broken, false).fault)
        .collect();
    println!("{broken:?}: {} of 200 schedules saw it", faults.len());
    for word in words {
        assert!(
            faults.iter().any(|fault| fault.contains(word)),
            "{broken:?} was not seen as {word:?}: {faults:#?}"
        );
    }
}

#[test]
fn the_simulation_sees_an_executor_that_forgets_finished_calls() {
    check_seen(Broken::Memory, &["was run 2 times"]);
}

#[test]
fn the_simulation_sees_an_executor_that_is_started_again_without_its_journal() {
    check_seen(Broken::Journal, &["was run 2 times"]);
}

#[test]
fn the_simulation_sees_acknowledged_results_that_come_again() {
    check_seen(Broken::Acks, &["of at most 0"]);
}

#[test]
fn a_seed_always_gives_the_same_schedule() {
    let ground = start_ground();
    for seed in 0..20 {
        let [first, second] = [(); 2].map(|()| run(&ground, seed, Broken::Nothing, true).trace);
        assert_eq!(hide_tokens(&first), hide_tokens(&second), "seed {seed}");
    }
}

/// The only thing that is drawn elsewhere is secret.
fn hide_tokens(trace: &[String]) -> Vec<String> {
    let cut = |line: &String| {
        line.split_once("resume_token")
            .map_or(line.clone(), |(head, _)| head.to_owned())
    };
    trace.iter().map(cut).collect()
}
