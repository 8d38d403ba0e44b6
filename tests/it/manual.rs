//! What packagers take from the binary: version, completions, man pages.

use std::process::Command;

use crate::support::binary::{BINARY, Printed, command, run, start_scratch};

fn printed(arguments: &[&str]) -> Printed {
    let scratch = start_scratch();
    let printed = run(command(scratch.path()).args(arguments));
    assert_eq!(printed.code, 0, "{arguments:?}: {}", printed.stderr);
    printed
}

/// Each command as `--help` lists it.
fn commands() -> Vec<String> {
    let help = printed(&["--help"]).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    list.lines()
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| {
            line.strip_prefix("  ")?
                .split(' ')
                .next()
                .map(str::to_owned)
        })
        .filter(|name| !name.is_empty() && name != "help")
        .collect()
}

#[test]
fn the_version_is_short_or_names_commit_and_protocols() {
    let number = env!("CARGO_PKG_VERSION");
    assert_eq!(printed(&["-V"]).stdout, format!("bma-executor {number}\n"));
    let long = printed(&["--version"]).stdout;
    let mut lines = long.lines();
    let first = lines.next().unwrap();
    let commit = first
        .strip_prefix(&format!("bma-executor {number} (commit "))
        .and_then(|rest| rest.strip_suffix(')'));
    assert!(commit.is_some_and(|commit| !commit.is_empty()), "{long}");
    assert_eq!(
        lines.next(),
        Some("protocols: bma.executor.v1.1, bma.executor.v1")
    );
}

#[test]
fn completions_know_every_command() {
    let commands = commands();
    assert!(commands.iter().any(|name| name == "serve"), "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]).stdout;
        for name in &commands {
            assert!(
                script.contains(name.as_str()),
                "{shell} does not know `{name}`"
            );
        }
    }
    // Bash itself completes by it.
    let line = "source <(\"$0\" completions bash); COMP_WORDS=(bma-executor ser); COMP_CWORD=1; \
        by=$(complete -p bma-executor); by=${by#*-F }; \
        ${by%% *} bma-executor ser bma-executor; echo \"${COMPREPLY[@]}\"";
    let completed = run(Command::new("bash").args(["-c", line, BINARY]));
    assert_eq!(completed.stdout, "serve\n", "{}", completed.stderr);
    let scratch = start_scratch();
    let wrong = run(command(scratch.path()).args(["completions", "csh"]));
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}

#[test]
fn there_is_a_man_page_of_the_program_and_of_each_command() {
    let whole = printed(&["man"]).stdout;
    assert!(whole.contains(".TH bma-executor 1"), "{whole}");
    for name in commands() {
        let page = printed(&["man", &name]).stdout;
        assert!(
            page.contains(&format!(".TH bma-executor-{name} 1")),
            "{page}"
        );
        assert!(page.contains(".SH DESCRIPTION"), "{page}");
    }
    assert!(printed(&["man", "serve"]).stdout.contains("\\-\\-listen"));
    let scratch = start_scratch();
    let wrong = run(command(scratch.path()).args(["man", "server"]));
    assert!(
        wrong.code == 2 && wrong.stderr.contains("server"),
        "{}",
        wrong.stderr
    );
    let line = "command -v groff >/dev/null || { echo 'not run: groff is not installed' >&2; exit 0; }; \
        \"$0\" man serve | groff -man -Tutf8 -P-cbou -ww";
    let set = run(Command::new("bash").args(["-c", line, BINARY]));
    println!("{}", set.stderr);
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert!(
        set.stdout.is_empty() || set.stdout.contains("NAME"),
        "{}",
        set.stdout
    );
}
