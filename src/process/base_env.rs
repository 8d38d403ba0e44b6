//! The environment that every command starts from: what the daemon was started with, without its secrets, with what a
//! service manager leaves out.
//!
//! It must never look at this process's own environment: that is passed in once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// An environment; ordered, so that equal ones are equal byte for byte.
pub(crate) type Env = BTreeMap<OsString, OsString>;

/// The path where none is given; the system administrator's directories too, since a daemon often runs as root.
const SANE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The locale where none is given: UTF-8, and nothing but the characters. `LANG` would have every bash load the files of all
/// categories, which costs a third of a millisecond for each command.
pub(super) const LOCALE: (&str, &str) = ("LC_CTYPE", "C.UTF-8");

/// Variables of one shell, which say nothing about the next.
const OF_ONE_SHELL: [&str; 3] = ["_", "PWD", "OLDPWD"];

/// Variables by which a service manager speaks to the one process that it started.
const OF_THE_SERVICE: [&str; 13] = [
    "CREDENTIALS_DIRECTORY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "MANAGERPID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "NOTIFY_SOCKET",
    "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// What the user database says about a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: OsString,
    pub(crate) home: OsString,
}

/// Builds the environment from what the daemon was started with.
pub(super) fn build(given: impl IntoIterator<Item = (OsString, OsString)>) -> Env {
    let mut env: Env = given
        .into_iter()
        .filter(|(name, _)| !name.as_bytes().starts_with(b"BMA_"))
        .collect();
    drop_shell_state(&mut env);
    for name in OF_THE_SERVICE {
        env.remove(OsStr::new(name));
    }
    let uid = rustix::process::geteuid().as_raw();
    let account = accounts().and_then(|text| account(&text, uid));
    let (name, home) = account.map_or_else(
        || (uid.to_string().into(), "/".into()),
        |account| (account.name, account.home),
    );
    default(&mut env, "PATH", SANE_PATH);
    default(&mut env, "HOME", &home);
    default(&mut env, "USER", &name);
    default(&mut env, "LOGNAME", &name);
    if !["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .any(|name| is_set(&env, name))
    {
        env.insert(LOCALE.0.into(), LOCALE.1.into());
    }
    if let Some(shell) = find_shell(&env) {
        default(&mut env, "SHELL", shell);
    }
    env
}

/// Removes the locale that was put in for want of another, where there is another now.
pub(super) fn drop_spare_locale(env: &mut Env) {
    if is_spare_locale(|name| env.get(OsStr::new(name)).map(OsString::as_os_str)) {
        env.remove(OsStr::new(LOCALE.0));
    }
}

/// Whether the locale that was put in for want of another stands beside another one.
pub(super) fn is_spare_locale<'v>(get: impl Fn(&str) -> Option<&'v OsStr>) -> bool {
    get("LANG").is_some_and(|value| !value.is_empty())
        && get(LOCALE.0).is_some_and(|value| value == LOCALE.1)
}

/// Removes what describes one running shell only.
pub(super) fn drop_shell_state(env: &mut Env) {
    for name in OF_ONE_SHELL {
        env.remove(OsStr::new(name));
    }
}

/// Finds bash: where systems put it, then along the path.
pub(super) fn find_shell(env: &Env) -> Option<PathBuf> {
    let usual = ["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let path = env.get(OsStr::new("PATH")).map(std::env::split_paths);
    find(usual.into_iter().chain(path.into_iter().flatten()), "bash")
}

/// Finds a program in directories, by absolute path.
pub(super) fn find(directories: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    directories
        .map(|directory| directory.join(name))
        .find(|program| program.is_absolute() && is_executable(program))
}

fn is_executable(program: &Path) -> bool {
    program.is_file() && rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok()
}

fn is_set(env: &Env, name: &str) -> bool {
    env.get(OsStr::new(name))
        .is_some_and(|value| !value.is_empty())
}

fn default(env: &mut Env, name: &str, value: impl Into<OsString>) {
    if !is_set(env, name) {
        env.insert(name.into(), value.into());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user database is not in any workspace"
)]
fn accounts() -> Option<Vec<u8>> {
    std::fs::read("/etc/passwd").ok()
}

/// Returns what the user database says about the user of this process.
pub(crate) fn own_entry() -> Option<Account> {
    entry(&accounts()?, rustix::process::geteuid().as_raw())
}

/// Finds an account that commands can be given: one with a home.
fn account(text: &[u8], uid: u32) -> Option<Account> {
    entry(text, uid).filter(|account| !account.home.is_empty())
}

/// Finds a line of the user database by its number, see passwd(5).
fn entry(text: &[u8], uid: u32) -> Option<Account> {
    let uid = uid.to_string();
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        if fields.nth(1)? != uid.as_bytes() {
            return None;
        }
        let home = fields.nth(2)?;
        Some(Account {
            name: OsString::from_vec(name.to_vec()),
            home: OsString::from_vec(home.to_vec()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(given: &[(&str, &str)]) -> Env {
        build(
            given
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        )
    }

    #[test]
    fn an_almost_empty_environment_is_completed() {
        let env = built(&[]);
        for name in ["PATH", "HOME", "USER", "LOGNAME", "LC_CTYPE"] {
            assert!(is_set(&env, name), "{name} is missing");
        }
        let path = env[OsStr::new("PATH")].to_str().unwrap();
        assert!(
            ["/usr/local/bin", "/usr/bin", "/bin"]
                .iter()
                .all(|dir| path.split(':').any(|part| part == *dir))
        );
    }

    #[test]
    fn what_was_given_is_kept_and_the_daemon_s_own_is_not() {
        let env = built(&[
            ("PATH", "/odd"),
            ("LC_CTYPE", "de_DE.UTF-8"),
            ("BMA_ENVIRONMENT_KEY", "k"),
            ("PWD", "/x"),
            ("MINE", "1"),
        ]);
        let value = |name: &str| env.get(OsStr::new(name)).and_then(|value| value.to_str());
        assert_eq!(value("PATH"), Some("/odd"));
        assert_eq!(value("MINE"), Some("1"));
        assert_eq!(
            (value("LANG"), value("BMA_ENVIRONMENT_KEY"), value("PWD")),
            (None, None, None)
        );
    }

    #[test]
    fn the_spare_locale_gives_way() {
        let mut env = built(&[]);
        drop_spare_locale(&mut env);
        assert!(is_set(&env, "LC_CTYPE"));
        env.insert("LANG".into(), "de_DE.UTF-8".into());
        drop_spare_locale(&mut env);
        assert!(!is_set(&env, "LC_CTYPE"));
    }

    #[test]
    fn accounts_are_found_by_number() {
        let text =
            b"root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000:Ann,,,:/home/ann:/bin/zsh\nbad\n";
        assert_eq!(
            account(text, 1000),
            Some(Account {
                name: "ann".into(),
                home: "/home/ann".into()
            })
        );
        assert_eq!(account(text, 100), None);
    }
}
