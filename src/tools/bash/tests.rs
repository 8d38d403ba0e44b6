//! `bash` through a `Ctx`, with real processes.

#![expect(
    clippy::disallowed_methods,
    reason = "tests look at files and processes from outside"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;
use crate::limits::Limits;
use crate::process::{Background, ProcessConfig, Processes};
use crate::progress::{Progress, ProgressSink};
use crate::stop::{Stop, StopCause};
use crate::wire::{OutputStream, TimeoutMs};
use crate::workspace::Workspace;

/// A workspace, a home and a session in it; what the session left is ended with it.
struct Scene {
    dir: tempfile::TempDir,
    processes: Processes,
    ctx: Ctx,
}

impl Scene {
    fn start() -> Self {
        Self::start_with(Limits::default(), ProcessConfig::default(), &[])
    }

    fn start_with(limits: Limits, config: ProcessConfig, env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (root, home) = (dir.path().join("w"), dir.path().join("home"));
        std::fs::create_dir(&root).unwrap();
        std::fs::create_dir(&home).unwrap();
        let limits = Arc::new(limits);
        let mut base: Vec<(OsString, OsString)> = vec![("HOME".into(), home.into())];
        base.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
        let processes = Processes::with_config(&limits, base, config);
        let ctx = Ctx {
            workspace: Workspace::open(&root, &limits).unwrap(),
            processes: processes.session(vec![("IN_SESSION".into(), "yes".into())]),
            stop: Stop::new(),
            progress: Progress::silent(),
            limits,
            max_result_bytes: 1024 * 1024,
            near: None,
        };
        Self {
            dir,
            processes,
            ctx,
        }
    }

    fn root(&self) -> &Path {
        self.ctx.workspace.root()
    }

    fn home(&self) -> std::path::PathBuf {
        self.dir.path().join("home")
    }

    async fn run(&self, command: &str) -> Ended {
        self.run_input(input(command)).await
    }

    async fn run_for(&self, command: &str, timeout_ms: u64) -> Ended {
        self.run_input(BashInput {
            timeout_ms: Some(TimeoutMs(timeout_ms)),
            ..input(command)
        })
        .await
    }

    async fn run_input(&self, input: BashInput) -> Ended {
        let ctx = Ctx {
            stop: self.ctx.stop.clone(),
            ..self.ctx.clone()
        };
        let bound = Duration::from_secs(30);
        let output = tokio::time::timeout(bound, bash(&ctx, input))
            .await
            .expect("the call did not end");
        Ended(output)
    }

    /// What a bash without anything around it says to a command, in the form of a result.
    fn plain(&self, command: &str) -> String {
        let start = || {
            std::process::Command::new("bash")
                .args(["-c", command])
                .current_dir(self.root())
                .env_remove("OLDPWD")
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
        };
        let spawned = crate::process::unmarked(start).unwrap();
        let ended = spawned.wait_with_output().unwrap();
        let code = ended.status.code().unwrap();
        let output = [ended.stdout, ended.stderr].concat();
        format!("{}exit_code: {code}", String::from_utf8_lossy(&output))
    }

    async fn close(self) -> u64 {
        self.ctx.processes.close().await
    }
}

#[derive(Debug)]
struct Ended(ToolOutput);

impl Ended {
    fn block(&self, index: usize) -> String {
        match self.0.content.get(index) {
            Some(ContentBlock::Text { text }) => text.plain(),
            _ => String::new(),
        }
    }

    fn text(&self) -> String {
        self.block(0)
    }

    fn notes(&self) -> String {
        (1..self.0.content.len())
            .map(|index| self.block(index))
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn details(&self) -> &BashDetails {
        match &self.0.details {
            Some(Details::Bash(details)) => details,
            other => panic!("no details of bash: {other:?} in {:?}", self.0),
        }
    }
}

fn input(command: &str) -> BashInput {
    BashInput {
        command: command.to_owned(),
        cwd: None,
        timeout_ms: None,
        env: None,
    }
}

/// Returns the processes whose command line holds a marker.
fn marked(marker: &str) -> Vec<String> {
    let numbers = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    numbers
        .filter(|name| {
            name.parse::<u32>()
                .is_ok_and(|pid| pid != std::process::id())
        })
        .filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(marker))
        .collect()
}

#[track_caller]
fn check_gone(marker: &str) {
    let end = Instant::now() + Duration::from_secs(2);
    let mut left = marked(marker);
    while !left.is_empty() && Instant::now() < end {
        std::thread::yield_now();
        left = marked(marker);
    }
    assert!(left.is_empty(), "still there: {left:?}");
}

#[tokio::test]
async fn both_streams_and_the_code_stand_on_their_own_lines() {
    let scene = Scene::start();
    for (command, expected) in [
        ("true", "exit_code: 0"),
        (
            "printf out; printf err >&2; exit 3",
            "out\nerr\nexit_code: 3",
        ),
        ("echo out", "out\nexit_code: 0"),
        ("echo err >&2; false", "err\nexit_code: 1"),
    ] {
        let ended = scene.run(command).await;
        assert_eq!(ended.text(), expected, "{command}");
        assert!(!ended.0.is_error && ended.notes().is_empty(), "{ended:?}");
        assert_eq!(ended.0.stopped, None);
    }
    let ended = scene.run("printf out; printf err >&2; exit 3").await;
    let details = ended.details();
    assert_eq!(
        (details.exit_code, details.cause),
        (Some(3), EndCause::Exited)
    );
    assert_eq!(
        (
            details.stdout_bytes,
            details.stderr_bytes,
            details.omitted_bytes
        ),
        (3, 3, 0)
    );
    assert_eq!((details.timeout_ms, details.killed), (120_000, 0));
    assert_eq!(scene.close().await, 0);
}

#[tokio::test]
async fn a_quiet_background_process_does_not_hold_the_call_and_ends_with_the_session() {
    let scene = Scene::start();
    for command in [
        "sleep 7301 </dev/null >/dev/null & echo done",
        "sleep 7301 & echo done",
        "nohup sleep 7301 & disown; echo done",
        "setsid sleep 7301 >/dev/null 2>&1 & echo done",
        "(setsid env -i /bin/sleep 7301 >/dev/null 2>&1 &) ; echo done",
    ] {
        let begun = Instant::now();
        let ended = scene.run(command).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{command}");
        assert!(ended.text().starts_with("done\n"), "{ended:?}");
        assert_eq!(ended.details().cause, EndCause::Exited);
        // What is listed may not have got so far as to become what it runs.
        assert_eq!(ended.details().background.len(), 1, "{command}: {ended:?}");
        assert!(ended.notes().contains("left running"), "{ended:?}");
    }
    assert_eq!(scene.close().await, 5);
    check_gone("sleep 7301");
}

#[tokio::test]
async fn background_processes_end_with_the_shell_where_configured() {
    let config = ProcessConfig {
        background: Background::Kill,
    };
    let scene = Scene::start_with(Limits::default(), config, &[]);
    let ended = scene
        .run("sleep 7302 & setsid sleep 7302 & echo done")
        .await;
    assert_eq!(ended.details().killed, 2, "{ended:?}");
    assert!(ended.details().background.is_empty());
    check_gone("sleep 7302");
}

#[tokio::test]
async fn a_session_keeps_a_bounded_number_of_background_processes() {
    let limits = Limits {
        max_background: 3,
        ..Limits::default()
    };
    let scene = Scene::start_with(limits, ProcessConfig::default(), &[]);
    let ended = scene.run("for i in 1 2 3 4 5; do sleep 7303 & done").await;
    assert_eq!(ended.details().background.len(), 3, "{ended:?}");
    assert_eq!(ended.details().killed, 2);
    assert!(
        ended.notes().contains("2 background processes ended"),
        "{ended:?}"
    );
    let refused = scene.run("echo more").await;
    assert!(
        refused.0.is_error && refused.text().contains("no more than 3"),
        "{refused:?}"
    );
    let pid = ended.details().background[0].pid.to_string();
    let number = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    while scene.run("true").await.0.is_error {
        assert!(Instant::now() < end, "the place is not free again");
    }
    scene.close().await;
    check_gone("sleep 7303");
}

#[tokio::test]
async fn a_timeout_reaches_every_descendant_and_keeps_the_output() {
    let scene = Scene::start();
    for command in [
        "echo STEP-1; echo warn >&2; bash -c 'sleep 7304; :' ; :",
        "echo STEP-1; echo warn >&2; sleep 7304 & wait",
        "echo STEP-1; echo warn >&2; sleep 7304 | cat",
        "echo STEP-1; echo warn >&2; (setsid setsid env -i /bin/sleep 7304 &) ; sleep 7304",
        "echo STEP-1; echo warn >&2; set -m; sleep 7304 & sleep 7304",
    ] {
        let ended = scene.run_for(command, 300).await;
        assert!(ended.text().starts_with("STEP-1\nwarn\n"), "{ended:?}");
        assert!(ended.0.is_error && ended.0.stopped.is_none());
        let details = ended.details();
        assert_eq!(
            (details.cause, details.timeout_ms),
            (EndCause::Timeout, 300)
        );
        assert!((300..2_300).contains(&details.duration_ms), "{details:?}");
        assert!(
            details.killed >= 2 && details.survived.is_empty(),
            "{command}: {details:?}"
        );
        assert!(ended.notes().contains("Timed out") && ended.notes().contains("300"));
        check_gone("sleep 7304");
    }
    let ended = scene.run_for("printf partial; sleep 7304", 200).await;
    assert_eq!(ended.text(), "partial\nexit_code: 143");
    assert_eq!(ended.details().signal.as_deref(), Some("SIGTERM"));
}

#[tokio::test]
async fn what_ignores_a_polite_end_is_killed_after_its_grace_and_heard_until_then() {
    let limits = Limits {
        kill_grace: Duration::from_millis(300),
        ..Limits::default()
    };
    let scene = Scene::start_with(limits, ProcessConfig::default(), &[]);
    for command in [
        "trap '' TERM INT HUP; while :; do sleep 0.05; echo tick; done; : 7305",
        "trap '' TERM; sleep 7305 & wait",
        "trap 'echo LAST; exit 9' TERM; while :; do sleep 0.05; done",
    ] {
        let ended = scene.run_for(command, 200).await;
        assert_eq!(ended.details().cause, EndCause::Timeout);
        assert!(ended.details().duration_ms < 3_000, "{ended:?}");
        if command.contains("LAST") {
            assert!(
                ended.text().starts_with("LAST\n") && ended.text().ends_with("exit_code: 9"),
                "{ended:?}"
            );
        } else if command.contains("tick") {
            assert!(ended.text().matches("tick").count() >= 6, "{ended:?}");
            assert_eq!(ended.details().signal.as_deref(), Some("SIGKILL"));
        }
        check_gone("7305");
    }
}

#[tokio::test]
async fn a_stop_ends_the_command_with_its_cause_and_its_output() {
    for (cause, expected) in [
        (StopCause::Cancelled, EndCause::Cancelled),
        (StopCause::Deadline, EndCause::Deadline),
        (StopCause::Shutdown, EndCause::Shutdown),
    ] {
        let scene = Scene::start();
        let stop = scene.ctx.stop.clone();
        let marker = scene.root().join("begun");
        let trigger = tokio::spawn(async move {
            while !marker.exists() {
                tokio::task::yield_now().await;
            }
            stop.trigger(cause);
        });
        let ended = scene
            .run("echo STEP-1; echo > begun; setsid sleep 7306 & sleep 7306")
            .await;
        trigger.await.unwrap();
        assert_eq!(ended.0.stopped, Some(cause));
        assert_eq!(ended.details().cause, expected);
        assert!(
            ended.0.is_error && ended.text().starts_with("STEP-1\n"),
            "{ended:?}"
        );
        check_gone("sleep 7306");
    }
}

#[tokio::test]
async fn closing_the_session_ends_running_commands() {
    let scene = Scene::start();
    let processes = scene.ctx.processes.clone();
    let marker = scene.root().join("begun");
    let close = tokio::spawn(async move {
        while !marker.exists() {
            tokio::task::yield_now().await;
        }
        processes.close().await
    });
    let ended = scene.run("echo > begun; sleep 7307").await;
    assert_eq!(ended.0.stopped, Some(StopCause::SessionClosed));
    assert_eq!(close.await.unwrap(), 1);
    check_gone("sleep 7307");
}

#[tokio::test]
async fn a_dropped_call_ends_its_command() {
    let scene = Scene::start();
    let marker = scene.root().join("begun");
    {
        let mut call = std::pin::pin!(scene.run("echo > begun; sleep 7308"));
        while !marker.exists() {
            tokio::select! {
                biased;
                ended = &mut call => panic!("{ended:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    assert_eq!(scene.close().await, 1);
    check_gone("sleep 7308");
}

#[tokio::test]
async fn there_is_no_input_and_no_further_descriptor() {
    let scene = Scene::start();
    let ended = scene.run("cat; echo rc=$?; read x; echo rc=$?").await;
    assert_eq!(ended.text(), "rc=0\nrc=1\nexit_code: 0");
    let held = std::fs::File::open("/proc/self/status").unwrap();
    let ended = scene
        .run("for f in /proc/$$/fd/*; do echo ${f##*/}; done")
        .await;
    drop(held);
    let text = ended.text();
    let numbers: Vec<&str> = text
        .lines()
        .filter(|line| line.parse::<u32>().is_ok())
        .collect();
    // The fourth is the directory that the shell is reading.
    assert_eq!(numbers, ["0", "1", "2", "3"], "{ended:?}");
}

#[tokio::test]
async fn death_by_signal_is_told_from_success() {
    let scene = Scene::start();
    for (signal, code, name) in [
        (9, 137, "SIGKILL"),
        (15, 143, "SIGTERM"),
        (11, 139, "SIGSEGV"),
    ] {
        let ended = scene.run(&format!("echo half; kill -{signal} $$")).await;
        assert_eq!(ended.text(), format!("half\nexit_code: {code}"));
        assert!(ended.0.is_error && ended.notes().contains(name));
        assert_eq!(
            (ended.details().exit_code, ended.details().cause),
            (None, EndCause::Signalled)
        );
        assert_eq!(ended.details().signal.as_deref(), Some(name));
    }
    let ended = scene.run("bash -c 'kill -9 $$'; exit 0").await;
    assert!(!ended.0.is_error && ended.text().ends_with("exit_code: 0"));
}

#[tokio::test]
async fn a_bad_working_directory_is_named_and_does_not_stay_bad() {
    let scene = Scene::start();
    std::fs::write(scene.root().join("file.txt"), "x").unwrap();
    std::fs::create_dir(scene.root().join("sub")).unwrap();
    let at = |cwd: &str, command: &str| BashInput {
        cwd: Some(cwd.to_owned()),
        ..input(command)
    };
    let ended = scene
        .run_input(at("sub", "rm -rf \"$PWD\"; echo gone"))
        .await;
    assert!(ended.text().starts_with("gone\n"), "{ended:?}");
    for cwd in ["none", "file.txt", "sub"] {
        let ended = scene.run_input(at(cwd, "echo > ran")).await;
        assert!(
            ended.0.is_error && !ended.text().contains("bash"),
            "{ended:?}"
        );
    }
    assert!(!scene.root().join("ran").exists());
    let ended = scene.run("pwd; echo $PWD").await;
    let root = scene.root().display();
    assert_eq!(ended.text(), format!("{root}\n{root}\nexit_code: 0"));
}

#[tokio::test]
async fn end_of_output_and_end_of_process_are_two_things() {
    let scene = Scene::start();
    let ended = scene
        .run("exec 1>&- 2>&-; sleep 0.3; echo > late; exit 3")
        .await;
    assert_eq!(ended.text(), "exit_code: 3");
    assert!(scene.root().join("late").exists());
    for _ in 0..20 {
        let ended = scene
            .run("head -c 300000 /dev/zero | tr '\\0' x; echo; echo END")
            .await;
        assert!(ended.text().ends_with("\nEND\nexit_code: 0"));
        assert_eq!(ended.details().stdout_bytes, 300_005);
    }
}

#[tokio::test]
async fn timeouts_of_any_size_are_taken() {
    let scene = Scene::start();
    for ms in [99_999_999_000, u64::MAX] {
        let ended = scene.run_for("echo ok", ms).await;
        assert!(ended.text().starts_with("ok\n"));
        assert_eq!(ended.details().timeout_ms, 3_600_000);
        assert!(ended.notes().contains("3600000"));
    }
}

#[tokio::test]
async fn a_command_s_last_line_is_its_own() {
    let scene = Scene::start();
    let long = format!(
        "{}\n",
        "# 34567890123456789012345678901234567890\n".repeat(4_000)
    );
    for prefix in ["", long.as_str()] {
        let run = async |command: &str| scene.run(&format!("{prefix}{command}")).await;
        run("cat > f <<'EOF'\nline\nEOF").await;
        assert_eq!(
            std::fs::read_to_string(scene.root().join("f")).unwrap(),
            "line\n"
        );
        assert_eq!(run("echo hi # comment").await.text(), "hi\nexit_code: 0");
        assert_eq!(run("echo a \\").await.text(), scene.plain("echo a \\"));
        assert_eq!(
            run("case x in x) echo y;; esac").await.text(),
            "y\nexit_code: 0"
        );
        let ended = run("echo 'unclosed").await;
        assert!(
            matches!(ended.details().exit_code, Some(1 | 2)),
            "{ended:?}"
        );
        let ended =
            run("echo $LINENO \"$0\" $# \"${REPLY-none}\" \"${BASH_SOURCE-none}\"; cat; exit 7")
                .await;
        let line = prefix.lines().count() + 1;
        assert_eq!(
            ended.text(),
            format!("{line} bash 0 none none\nexit_code: 7")
        );
        assert_eq!(run("(exit 5)").await.details().exit_code, Some(5));
    }
    assert_eq!(
        scene.run("-x 2>/dev/null; echo $?").await.text(),
        "127\nexit_code: 0"
    );
    let ended = scene.run("echo a\0b").await;
    assert!(ended.0.is_error && ended.text().contains("NUL"));
}

#[tokio::test]
async fn what_a_command_sets_on_its_stdin_is_set_for_no_other() {
    let scene = Scene::start();
    let look = "grep flags /proc/self/fdinfo/0";
    let before = scene.run(look).await.text();
    let set = format!("dd iflag=nonblock count=1 status=none; {look}");
    assert_ne!(scene.run(&set).await.text(), before);
    assert_eq!(scene.run(look).await.text(), before);
}

#[tokio::test]
async fn a_command_sees_of_its_shell_what_bash_c_shows() {
    let scene = Scene::start();
    for command in [
        "echo $0 $# $- $PWD $BASH_EXECUTION_STRING; pwd -L; pwd -P; printenv PWD; declare -p OLDPWD",
        "echo ${BASH##*/} ${BASH_ARGV0-none} ${BASH_SOURCE-none}",
        "nonesuch",
        "f() { nonesuch; }; f",
        "(nonesuch)",
        "cd /nonesuch",
        "exec /nonesuch",
        "if",
        "echo $((1/0))",
        "set -u; echo $nonesuch",
        "source /nonesuch",
        "shopt -p; set -o",
    ] {
        assert_eq!(scene.run(command).await.text(), scene.plain(command));
    }
}

#[tokio::test]
async fn a_command_as_long_as_a_message_runs() {
    let scene = Scene::start();
    let body = "x".repeat(8 * 1024 * 1024);
    let ended = scene.run(&format!("v={body}; echo ${{#v}}")).await;
    assert_eq!(ended.text(), format!("{}\nexit_code: 0", body.len()));
}

#[tokio::test]
async fn characters_torn_between_reads_stay_whole() {
    let scene = Scene::start();
    let ended = scene
        .run("printf 'x\\342'; sleep 0.05; printf 'E\\n' >&2; sleep 0.05; printf '\\200\\224y'")
        .await;
    assert_eq!(ended.text(), "x—y\nE\nexit_code: 0");
    assert_eq!(ended.details().undecodable_bytes, 0);
    let ended = scene.run("for i in {1..15000}; do printf 你; done").await;
    assert_eq!(ended.text().matches('你').count(), 15_000);
    let ended = scene.run("for i in {1..50000}; do printf 你; done").await;
    assert!(!ended.text().contains('\u{fffd}') && ended.details().omitted_bytes > 0);
    let ended = scene.run("printf 'ok\\342\\200'").await;
    assert_eq!(ended.text(), "ok\u{fffd}\nexit_code: 0");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_replaced_and_counted() {
    let scene = Scene::start();
    let ended = scene
        .run("printf 'a\\0b\\001\\033[31mc\\177\\377\\376d'; printf '\\355\\240\\275'")
        .await;
    assert_eq!(
        ended.text(),
        "a\0b\u{1}\u{1b}[31mc\u{7f}\u{fffd}\u{fffd}d\u{fffd}\u{fffd}\u{fffd}\nexit_code: 0"
    );
    assert_eq!(ended.details().undecodable_bytes, 5);
    assert!(ended.notes().contains("5 bytes"));
}

#[tokio::test]
async fn a_cut_keeps_both_ends_and_the_whole_is_on_disk() {
    let scene = Scene::start();
    let ended = scene
        .run("seq 1 200000; echo FINAL-MARKER; echo warn >&2; exit 3")
        .await;
    let text = ended.text();
    assert!(
        text.starts_with("1\n2\n3\n") && text.ends_with("FINAL-MARKER\nwarn\nexit_code: 3"),
        "{text}"
    );
    let details = ended.details();
    assert_eq!(
        (details.exit_code, details.stdout_bytes),
        (Some(3), 1_288_908)
    );
    let mark = text.lines().find(|line| line.starts_with("[...")).unwrap();
    assert!(mark.contains(&details.omitted_bytes.to_string()));
    let (head, tail) = text.split_once(mark).unwrap();
    let tail = tail
        .strip_prefix('\n')
        .unwrap()
        .strip_suffix("warn\nexit_code: 3")
        .unwrap();
    // Where the head does not end with its line, a line break is added before the mark.
    let surplus = (head.len() + tail.len()) as u64 + details.omitted_bytes - 1_288_908;
    assert!(surplus <= 1, "{surplus}");
    let paths = details.output_paths.clone().unwrap();
    let whole = std::fs::read_to_string(scene.root().join(paths.stdout.unwrap())).unwrap();
    assert_eq!(whole.len(), 1_288_908);
    assert!(whole.ends_with("200000\nFINAL-MARKER\n"));
    assert_eq!(
        std::fs::read_to_string(scene.root().join(paths.stderr.unwrap())).unwrap(),
        "warn\n"
    );
    assert_eq!(
        std::fs::read_to_string(scene.root().join(".bma/.gitignore")).unwrap(),
        "*\n"
    );
    let ended = scene.run("echo small").await;
    assert_eq!(ended.details().output_paths, None);
}

#[tokio::test]
async fn outputs_are_bounded_on_disk_and_never_written_through_a_link() {
    let limits = Limits {
        spill_call_bytes: 100_000,
        spill_workspace_bytes: 250_000,
        ..Limits::default()
    };
    let scene = Scene::start_with(limits, ProcessConfig::default(), &[]);
    for _ in 0..5 {
        let ended = scene.run("head -c 200000 /dev/zero | tr '\\0' a").await;
        assert!(ended.notes().contains("ceiling"), "{ended:?}");
        let outputs = std::fs::read_dir(scene.root().join(".bma/outputs")).unwrap();
        let sum: u64 = outputs
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!((100_000..=250_000).contains(&sum), "{sum}");
    }
    let outside = tempfile::tempdir().unwrap();
    std::fs::remove_dir_all(scene.root().join(".bma")).unwrap();
    std::os::unix::fs::symlink(outside.path(), scene.root().join(".bma")).unwrap();
    let ended = scene.run("head -c 200000 /dev/zero | tr '\\0' a").await;
    assert!(
        !ended.0.is_error && ended.notes().contains("could not be kept"),
        "{ended:?}"
    );
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_flood_is_drained_in_bounded_memory_and_others_go_on() {
    let scene = Scene::start();
    let flood = scene.run("head -c 300000000 /dev/zero | tr '\\0' a");
    let floods = scene.run_for("yes >&2", 1_000);
    let beside = async {
        let begun = Instant::now();
        let ended = scene.run("echo alive").await;
        (begun.elapsed(), ended)
    };
    let (flood, floods, (took, beside)) = tokio::join!(flood, floods, beside);
    assert_eq!(
        (flood.details().stdout_bytes, flood.details().exit_code),
        (300_000_000, Some(0))
    );
    assert!(flood.text().len() < 50_000);
    assert!(
        floods.details().stderr_bytes > 1_000_000,
        "{:?}",
        floods.details()
    );
    assert!(took < Duration::from_secs(1) && beside.text().starts_with("alive\n"));
}

#[derive(Default)]
struct Heard(Mutex<Vec<(Option<OutputStream>, String, u64)>>);

impl ProgressSink for Heard {
    fn offer(&self, stream: Option<OutputStream>, message: String, dropped: u64) {
        self.0.lock().unwrap().push((stream, message, dropped));
    }
}

#[tokio::test]
async fn progress_is_coalesced_and_counts_what_it_drops() {
    let mut scene = Scene::start();
    let heard = Arc::new(Heard::default());
    scene.ctx.progress = Progress::new(Arc::<Heard>::clone(&heard));
    scene
        .run("echo one; sleep 0.25; echo two >&2; sleep 0.25")
        .await;
    let told: Vec<_> = heard.0.lock().unwrap().drain(..).collect();
    assert_eq!(
        told,
        [
            (Some(OutputStream::Stdout), "one\n".to_owned(), 0),
            (Some(OutputStream::Stderr), "two\n".to_owned(), 0),
        ]
    );
    scene.run_for("yes", 600).await;
    let told = heard.0.lock().unwrap();
    assert!((2..12).contains(&told.len()), "{}", told.len());
    assert!(told.iter().all(|(_, text, _)| text.len() <= 16 * 1024));
    assert!(told.iter().any(|(_, _, dropped)| *dropped > 0));
}

#[tokio::test]
async fn secrets_stay_out_and_gaps_are_filled() {
    let scene = Scene::start_with(
        Limits::default(),
        ProcessConfig::default(),
        &[("BMA_ENVIRONMENT_KEY", "tok-1"), ("MINE", "m")],
    );
    let mut call = input("env; echo \"home=$HOME\"; echo é");
    call.env = Some([("K".to_owned(), "val-2".to_owned())].into());
    let ended = scene.run_input(call).await;
    let text = ended.text();
    assert!(!text.contains("tok-1") && !text.contains("BMA_"), "{text}");
    for line in [
        "MINE=m",
        "K=val-2",
        "IN_SESSION=yes",
        "SHLVL=1",
        "LC_CTYPE=C.UTF-8",
        "é",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in {text}"
        );
    }
    assert!(text.contains(&format!("home={}", scene.home().display())));
}

#[tokio::test]
async fn the_login_shell_s_environment_is_seen_and_follows_its_files() {
    let scene = Scene::start_with(
        Limits::default(),
        ProcessConfig::default(),
        &[("PATH", "/usr/bin:/bin:/odd/bin")],
    );
    let profile = scene.home().join(".profile");
    std::fs::write(&profile, "echo noise; echo noise >&2; export LOGGED='in\nout'; PATH=$HOME/b:$PATH\nplain() { echo \"plain $1\"; }\nset -eu; trap 'echo trapped' EXIT; IFS=x").unwrap();
    let ended = scene
        .run("plain 1; printf '%s\\n' \"$LOGGED\"; echo \"$PATH\"; echo $SHLVL; echo $undefined")
        .await;
    assert!(ended.text().starts_with("plain 1\nin\nout\n"), "{ended:?}");
    assert!(
        ended.text().contains("home/b:") && ended.text().contains(":/odd/bin"),
        "{ended:?}"
    );
    assert!(ended.text().ends_with("1\n\nexit_code: 0"), "{ended:?}");
    std::fs::write(&profile, "export LOGGED=again").unwrap();
    assert_eq!(
        scene.run("echo $LOGGED").await.text(),
        "again\nexit_code: 0"
    );
}

#[tokio::test]
async fn start_up_files_that_misbehave_do_no_harm() {
    for profile in [
        "sleep 7309",
        "exit 4",
        "exec /bin/cat",
        "kill -9 $$",
        "syntax ((",
        "exec >/dev/null",
        "exec >&-; sleep 7309",
        "yes",
        "trap '' TERM PIPE; yes & sleep 7309",
        "while :; do :; done",
    ] {
        let limits = Limits {
            kill_grace: Duration::from_millis(100),
            ..Limits::default()
        };
        let scene = Scene::start_with(limits, ProcessConfig::default(), &[]);
        std::fs::write(scene.home().join(".bash_profile"), profile).unwrap();
        let begun = Instant::now();
        assert_eq!(
            scene.run("echo ok").await.text(),
            "ok\nexit_code: 0",
            "{profile}"
        );
        assert!(
            begun.elapsed() < Duration::from_millis(1_900),
            "{profile}: {:?}",
            begun.elapsed()
        );
        let begun = Instant::now();
        assert_eq!(
            scene.run("echo ok").await.text(),
            "ok\nexit_code: 0",
            "{profile}"
        );
        assert!(
            begun.elapsed() < Duration::from_millis(500),
            "{profile}: {:?}",
            begun.elapsed()
        );
        scene.processes.close().await;
        check_gone("sleep 7309");
    }
}

#[tokio::test]
async fn a_slow_start_up_file_is_not_broken_off_and_counts_once_it_has_ended() {
    let limits = Limits {
        login_env_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let scene = Scene::start_with(limits, ProcessConfig::default(), &[]);
    std::fs::write(scene.home().join(".profile"), "sleep 0.4; export LOGGED=in").unwrap();
    assert_eq!(
        scene.run("echo ${LOGGED-out}").await.text(),
        "out\nexit_code: 0"
    );
    let until = Instant::now() + Duration::from_secs(5);
    while scene.run("echo ${LOGGED-out}").await.text() != "in\nexit_code: 0" {
        assert!(Instant::now() < until, "the environment does not come");
    }
}

#[tokio::test]
async fn a_directory_that_may_not_be_entered_is_told_from_a_missing_shell() {
    if rustix::process::geteuid().is_root() {
        // The superuser may enter any directory.
        return;
    }
    let scene = Scene::start();
    let closed = scene.root().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o400)).unwrap();
    let ended = scene
        .run_input(BashInput {
            cwd: Some("closed".to_owned()),
            ..input("true")
        })
        .await;
    assert!(
        ended.0.is_error && ended.text().contains("`closed`"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn orphans_are_reaped_without_being_asked() {
    let scene = Scene::start();
    let mut pids = Vec::new();
    for _ in 0..20 {
        let ended = scene.run("(sleep 0.1 & echo $!) ; (: & echo $!)").await;
        pids.extend(
            ended
                .text()
                .lines()
                .filter_map(|line| line.parse::<u32>().ok()),
        );
    }
    assert_eq!(pids.len(), 40);
    let left = || {
        pids.iter()
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists())
            .count()
    };
    let end = Instant::now() + Duration::from_secs(5);
    while left() > 0 {
        assert!(Instant::now() < end, "{} are left", left());
        tokio::task::yield_now().await;
    }
}

/// Not a test by itself: the program that the next test starts, since a process protects itself once and for all.
#[tokio::test]
async fn protected_role() {
    if std::env::var("TEST_ROLE").as_deref() != Ok("protected") {
        return;
    }
    crate::process::protect_self().unwrap();
    let scene = Scene::start();
    let root = scene.root().display().to_string();
    let ended = scene
        .run("pwd; cat /proc/$PPID/environ /proc/$PPID/mem; ls /proc/$PPID/fd")
        .await;
    assert!(ended.text().starts_with(&root), "{ended:?}");
    if !rustix::process::geteuid().is_root() {
        assert!(!ended.text().contains("tok-SECRET"), "{ended:?}");
        assert_eq!(
            ended.text().matches("Permission denied").count(),
            3,
            "{ended:?}"
        );
    }
    let ended = scene
        .run("sleep 7332 & grep -az tok-SECRET /proc/self/environ; echo rc=$?")
        .await;
    assert!(ended.text().starts_with("rc=1\n"), "{ended:?}");
    assert_eq!(ended.details().background.len(), 1, "{ended:?}");
    assert_eq!(scene.close().await, 1);
    println!("protected and working");
}

#[test]
fn a_protected_process_runs_commands_that_cannot_look_into_it() {
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .args([
            "--exact",
            "tools::bash::tests::protected_role",
            "--nocapture",
        ])
        .envs([
            ("TEST_ROLE", "protected"),
            ("BMA_ENVIRONMENT_KEY", "tok-SECRET-1"),
        ])
        .stdout(std::process::Stdio::piped());
    let child = crate::process::unmarked(|| command.spawn()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("protected and working"), "{text}");
}

#[tokio::test]
async fn processes_that_multiply_or_replace_themselves_are_ended() {
    let scene = Scene::start();
    let hop = scene.root().join("hop7333");
    std::fs::write(
        &hop,
        "#!/bin/bash\ntrap '' TERM\necho >> hops\nsetsid \"$0\" </dev/null >/dev/null 2>&1 &\n",
    )
    .unwrap();
    std::fs::set_permissions(&hop, std::fs::Permissions::from_mode(0o755)).unwrap();
    let limits = Limits {
        kill_grace: Duration::from_millis(200),
        ..Limits::default()
    };
    let scene = Scene {
        ctx: Ctx {
            limits: Arc::new(limits),
            ..scene.ctx.clone()
        },
        ..scene
    };
    for command in [
        "./hop7333; sleep 7334",
        "trap '' TERM; grow() { while :; do (sleep 7334 &); sleep 0.01; done; }; grow & grow & grow",
    ] {
        let ended = scene.run_for(command, 500).await;
        assert_eq!(ended.details().survived, [] as [u32; 0], "{ended:?}");
        check_gone("7333");
        check_gone("7334");
    }
    let hops = || std::fs::metadata(scene.root().join("hops")).unwrap().len();
    let before = hops();
    assert!(before > 10);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(hops(), before);
}
