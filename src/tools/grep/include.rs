//! grep's `glob`: which files are searched.

use std::os::unix::ffi::OsStrExt as _;

use bstr::ByteSlice as _;

use crate::limits::Limits;
use crate::tools::search::{Pattern, alternatives, clip};
use crate::workspace::Workspace;
use crate::workspace::spelling::parse;
use crate::workspace::walk::{Claim, Entry};

/// A filter on files. Without a slash it speaks of the name at any depth, with one of the path below the search root.
#[derive(Debug)]
pub(super) struct Include {
    pattern: Pattern,
    /// Whether it names what is left out, by a `!` at its beginning.
    negated: bool,
}

impl Include {
    /// Compiles a filter for a search that begins at `base`, a path relative to the workspace.
    ///
    /// # Errors
    /// A sentence for the model.
    pub(super) fn new(
        text: &str,
        workspace: &Workspace,
        base: &[u8],
        limits: &Limits,
    ) -> Result<Self, String> {
        let refused = |why: &dyn std::fmt::Display| {
            let shown = clip(text, limits.quoted_chars);
            format!("The filter `{shown}` in `glob` cannot be used: {why}.")
        };
        let (negated, plain) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let plain = parse(plain).map_err(|error| refused(&error))?;
        let plain = plain
            .to_str()
            .map_err(|_bytes| refused(&"a filter must be UTF-8"))?;
        let all = alternatives(plain, limits.glob_alternatives).map_err(|error| refused(&error))?;
        let root = workspace.root().as_os_str().as_bytes();
        let mut anchored = Vec::new();
        for one in all {
            anchored.push(anchor(&one, root, base).map_err(|why| refused(&why))?);
        }
        let pattern = Pattern::new(&anchored).map_err(|error| refused(&error))?;
        Ok(Self { pattern, negated })
    }

    /// Whether a file is to be searched.
    pub(super) fn claim(&self, entry: &Entry<'_>) -> Claim {
        let claim = self.pattern.claim(entry.below, entry.name.to_bytes());
        match (self.negated, claim) {
            (false, claim) => claim,
            (true, Claim::No) => Claim::UnlessIgnored,
            (true, _) => Claim::No,
        }
    }

    /// Whether a directory is to be entered.
    pub(super) fn descend(&self, entry: &Entry<'_>) -> Claim {
        if self.negated {
            Claim::UnlessIgnored
        } else {
            self.pattern.descend(entry.depth, entry.name.to_bytes())
        }
    }
}

/// Makes a plain pattern one for paths below the search root.
fn anchor(plain: &str, root: &[u8], base: &[u8]) -> Result<String, &'static str> {
    let directory = plain.ends_with('/');
    let inside = plain.as_bytes().strip_prefix(root);
    let inside = inside.filter(|rest| rest.starts_with(b"/"));
    let from_base = match inside {
        Some(rest) => {
            let rest = rest.trim_start_with(|char| char == '/');
            let below = match base {
                b"" => Some(rest),
                base => (rest.strip_prefix(base)).and_then(|rest| rest.strip_prefix(b"/")),
            };
            let below = below.ok_or("it names a place outside of `path`")?;
            below.to_str().map_err(|_bytes| "it must be UTF-8")?
        }
        None => plain,
    };
    let parts: Vec<_> = (from_base.split('/'))
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err("`..` has no place in a filter; give the directory as `path`");
    }
    let mut joined = parts.join("/");
    if inside.is_none() && !plain.contains('/') {
        joined.insert_str(0, "**/");
    }
    if directory {
        // `docs/` means what is in it, at any depth, as in an ignore file.
        joined.push_str("/**");
        if parts.len() == 1 && !plain.starts_with('/') {
            joined.insert_str(0, "**/");
        }
    }
    Ok(joined)
}
