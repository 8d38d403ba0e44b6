//! Tells the program which commit it is built from, for `--version`.
//!
//! `BMA_EXECUTOR_COMMIT` says it where there is no repository (a tarball, a container build). Without it a release build
//! asks git; any other build does not, or each commit would have everything compiled anew.

#![expect(clippy::disallowed_methods, reason = "a build script asks git")]

use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "BMA_EXECUTOR_COMMIT";

/// What the program is made of.
const SOURCES: [&str; 4] = ["Cargo.lock", "Cargo.toml", "contracts", "src"];

fn main() {
    println!("cargo::rerun-if-changed=deploy/build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let given = std::env::var(VARIABLE).ok().filter(|text| is_name(text));
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| release.then(of_repository).flatten());
    println!(
        "cargo::rustc-env={VARIABLE}={}",
        commit.as_deref().unwrap_or("unknown")
    );
}

/// Whether a text can be shown as it is.
fn is_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(known)
}

/// The commit that is checked out here, with a mark where files differ from it.
fn of_repository() -> Option<String> {
    // A tarball may have been unpacked inside of somebody else's repository.
    if !Path::new(".git").exists() {
        return None;
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // These change when another commit is checked out. A path that is not there would have this run each time.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in [Some("HEAD"), Some("packed-refs"), branch.as_deref()]
        .into_iter()
        .flatten()
    {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // What has the program built again in any case has the mark made again, too.
    for path in SOURCES {
        println!("cargo::rerun-if-changed={path}");
    }
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changed = git(&[&status[..], &SOURCES].concat()).is_some();
    Some(if changed {
        format!("{commit}-changed")
    } else {
        commit
    })
}

/// Runs git; `None` where it fails or has nothing to say.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
