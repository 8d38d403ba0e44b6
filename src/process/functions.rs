//! The functions of the login shell, and which commands can do without those that no program gets.
//!
//! A function can reach a command through its environment only, and bash parses each one at every start: 0.1 ms for a
//! short one, many milliseconds for what some tools put into a profile. Left out are functions that the profile does not
//! export, and only where the command can neither name one nor bring in code from elsewhere. It must never leave one
//! out that a login shell would have called.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use super::base_env::Env;
use super::variables::Variables;

/// What a login shell comes to.
#[derive(Debug, Clone, Default)]
pub(super) struct Login {
    /// With all of its functions.
    whole: Variables,
    /// Without those that it does not export; none where commands always need them.
    lean: Option<Variables>,
    /// Their names.
    plain: HashSet<Vec<u8>>,
}

/// Bash calls it by itself for a command that does not exist.
const CALLED_BY_ITSELF: &[u8] = b"command_not_found_handle";

/// Built-in commands that run code which stands elsewhere, or show functions.
const OPEN: [&str; 30] = [
    ".",
    "source",
    "eval",
    "command",
    "builtin",
    "type",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "unset",
    "compgen",
    "complete",
    "compopt",
    "set",
    "trap",
    "hash",
    "enable",
    "alias",
    "unalias",
    "shopt",
    "bind",
    "fc",
    "mapfile",
    "readarray",
    "coproc",
    "function",
    "which",
    "exec",
];

/// Variables that bring code into a command.
const CODE: [&str; 2] = ["BASH_ENV", "SHELLOPTS"];

impl Login {
    /// Takes an environment whose functions all belong to every command.
    pub(super) fn unchanged(whole: &Env) -> Self {
        Self {
            whole: Variables::of(whole),
            ..Self::default()
        }
    }

    /// Takes an environment in which all functions stand as variables, and the names of those that programs get too.
    pub(super) fn new(whole: &Env, exported: &HashSet<Vec<u8>>) -> Self {
        let plain: HashSet<Vec<u8>> = whole
            .keys()
            .filter_map(|name| function_name(name.as_bytes()))
            .filter(|name| !exported.contains(*name))
            .map(<[u8]>::to_vec)
            .collect();
        let closed = !plain.is_empty() && !plain.contains(CALLED_BY_ITSELF);
        let lean = closed.then(|| {
            let is_plain = |name: &OsString| {
                function_name(name.as_bytes()).is_some_and(|name| plain.contains(name))
            };
            let mut lean = whole.clone();
            lean.retain(|name, _| !is_plain(name));
            Variables::of(&lean)
        });
        let whole = Variables::of(whole);
        Self { whole, lean, plain }
    }

    /// Returns the environment that a command needs; `above` are the variables that come over it.
    pub(super) fn for_command<'v>(
        &self,
        command: &str,
        mut above: impl Iterator<Item = &'v OsStr>,
    ) -> &Variables {
        let Some(lean) = &self.lean else {
            return &self.whole;
        };
        let brings_code = |name: &[u8]| CODE.iter().any(|code| name == code.as_bytes());
        let brings_code =
            above.any(|name| brings_code(name.as_bytes())) || self.whole.names().any(brings_code);
        if brings_code || !is_closed(command, &self.plain) {
            return &self.whole;
        }
        lean
    }
}

/// Returns the name of the function that a variable holds; the form is bash's own.
fn function_name(variable: &[u8]) -> Option<&[u8]> {
    variable.strip_prefix(b"BASH_FUNC_")?.strip_suffix(b"%%")
}

/// Whether a command consists of plain words and operators only, none of which is a function's name or opens a way to
/// one. Quotes, expansions and patterns could make any word.
fn is_closed(command: &str, functions: &HashSet<Vec<u8>>) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:=,@%+-".contains(&byte);
    let parts = |byte: &u8| b" \t\n|&;<>()".contains(byte);
    command
        .as_bytes()
        .iter()
        .all(|byte| is_plain(*byte) || parts(byte))
        && command.as_bytes().split(parts).all(|word| {
            !functions.contains(word) && !OPEN.iter().any(|open| open.as_bytes() == word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(functions: &[&str], exported: &[&str]) -> Login {
        let mut env = Env::from([("PATH".into(), "/bin".into())]);
        for name in functions.iter().chain(exported) {
            env.insert(format!("BASH_FUNC_{name}%%").into(), "() { :; }".into());
        }
        let exported = exported.iter().map(|name| name.as_bytes().to_vec());
        Login::new(&env, &exported.collect())
    }

    #[track_caller]
    fn check(login: &Login, command: &str, above: &[&str], functions: usize) {
        let env = login.for_command(command, above.iter().map(OsStr::new));
        let count = env.names().count();
        assert_eq!(count, 1 + functions, "{command} gets {env:?}");
    }

    #[test]
    fn plain_words_do_without_functions_that_they_cannot_call() {
        let login = login(&["nvm", "a-b"], &["given"]);
        for command in [
            "true",
            "ls -la src | wc -l",
            "cd /tmp && make -j2 2>&1",
            "X=1 ./run.sh;\n(git status)",
        ] {
            check(&login, command, &[], 1);
        }
    }

    #[test]
    fn whatever_may_call_one_gets_them_all() {
        let login = login(&["nvm", "a-b"], &["given"]);
        for command in [
            "nvm use 20",
            "cd x;nvm ls",
            "(a-b)",
            "x|a-b",
            "X=1 nvm",
            ". ./env",
            "source env",
            "eval nvm",
            "n\\vm",
            "'nvm'",
            "\"n\"vm",
            "$X",
            "`x`",
            "n?m",
            "n*",
            "[n]vm",
            "{nvm,x}",
            "~/x",
            "type x",
            "declare -F",
            "set",
            "exec -a x y",
            "trap nvm EXIT",
            "nvm#",
            "é",
        ] {
            check(&login, command, &[], 3);
        }
        check(&login, "true", &["X", "BASH_ENV"], 3);
        check(&login, "true", &["X"], 1);
    }

    #[test]
    fn what_bash_calls_by_itself_is_always_there() {
        check(
            &login(&["nvm", "command_not_found_handle"], &[]),
            "true",
            &[],
            2,
        );
        check(&login(&[], &["given"]), "true", &[], 1);
    }
}
