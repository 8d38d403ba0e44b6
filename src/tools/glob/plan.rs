//! Where a glob begins: names that it spells out are looked up, only the rest is walked.

use std::collections::BTreeSet;

use bstr::ByteSlice as _;

use crate::limits::Limits;
use crate::tools::search::{Pattern, alternatives, clip, literal_components};
use crate::wire::GlobInput;
use crate::workspace::spelling::{parse, show};
use crate::workspace::walk::{Base, Kind, kind_of};
use crate::workspace::{PathErrorKind, Resolved, ResolvedKind, Workspace};

/// Why a glob cannot run: a sentence for the model.
#[derive(Debug)]
pub(super) struct Unusable(pub(super) String);

/// What a glob comes to.
#[derive(Debug)]
pub(super) struct Plan {
    /// Paths that the pattern spells out and that exist, a directory with a slash at its end.
    pub(super) named: BTreeSet<Vec<u8>>,
    /// What must be searched for.
    pub(super) walk: Option<Walk>,
    /// What the answer should say.
    pub(super) notes: Vec<String>,
}

/// A search below one directory.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) base: Base,
    pub(super) pattern: Pattern,
    /// Whether directories are wanted rather than files.
    pub(super) directories: bool,
}

/// Looks up what the pattern spells out and finds where the walk begins.
pub(super) fn plan(
    workspace: &Workspace,
    input: &GlobInput,
    limits: &Limits,
) -> Result<Plan, Unusable> {
    let unusable = |why: &dyn std::fmt::Display| {
        let shown = clip(&input.pattern, limits.quoted_chars);
        Unusable(format!("The pattern `{shown}` cannot be used: {why}."))
    };
    let pattern = parse(&input.pattern).map_err(|error| unusable(&error))?;
    let absolute = pattern.starts_with(b"/");
    let start = if absolute {
        // An absolute pattern says itself where to search.
        Vec::new()
    } else {
        start(workspace, input.path.as_deref())?
    };
    let mut plan = Plan {
        named: BTreeSet::new(),
        walk: None,
        notes: Vec::new(),
    };
    // A name with brackets or stars in it may be meant as it is written.
    let directories = pattern.ends_with(b"/");
    let whole = plan.look_up(workspace, &start, &pattern, directories);
    let Ok(text) = pattern.to_str() else {
        whole?;
        if plan.named.is_empty() && pattern.find_byteset(b"*?[{").is_some() {
            return Err(unusable(
                &"a name that is not UTF-8 can only be given whole, without wildcards",
            ));
        }
        return Ok(plan);
    };
    let all = alternatives(text, limits.glob_alternatives).map_err(|error| unusable(&error))?;
    let mut wild = Vec::new();
    for alternative in all {
        let tidied = tidy(&alternative);
        if tidied.starts_with('/') != absolute {
            return Err(unusable(
                &"its alternatives must all be absolute, or none of them",
            ));
        }
        let (names, rest) = literal_components(&tidied);
        if rest.is_empty() {
            plan.look_up(workspace, &start, names.join("/").as_bytes(), directories)?;
        } else {
            wild.push((tidied.clone(), names));
        }
    }
    if let Some((_, first)) = wild.first() {
        let common = (wild.iter()).fold(first.clone(), |common, (_, names)| {
            let same = common.iter().zip(names).take_while(|(a, b)| a == b);
            same.map(|(name, _)| name.clone()).collect()
        });
        let below: Vec<_> = (wild.iter())
            .map(|(plain, _)| {
                let parts: Vec<_> = plain.split('/').skip(common.len()).collect();
                parts.join("/")
            })
            .collect();
        if (below.iter()).any(|plain| plain.split('/').any(|part| part == "..")) {
            return Err(unusable(&"`..` can only stand before the first wildcard"));
        }
        let mut base = join(&start, common.join("/").as_bytes());
        if base.is_empty() && absolute {
            base.push(b'/');
        }
        let pattern = Pattern::new(&below).map_err(|error| unusable(&error))?;
        plan.walk_below(workspace, &base, pattern, directories)?;
    }
    Ok(plan)
}

impl Plan {
    /// Adds the entry at a path, where there is one.
    fn look_up(
        &mut self,
        workspace: &Workspace,
        start: &[u8],
        path: &[u8],
        directories: bool,
    ) -> Result<(), Unusable> {
        let full = join(start, path.trim_end_with(|char| char == '/'));
        let (parent, name) = match full.rsplit_once_str("/") {
            Some((parent, name)) => (if parent.is_empty() { b"/" } else { parent }, name),
            None => (&b"."[..], full.as_slice()),
        };
        let found = if matches!(name, b"" | b"." | b"..") {
            resolve(workspace, &full)?.map(|at| (at.path, Kind::Directory))
        } else {
            resolve(workspace, parent)?.and_then(|at| {
                let kind = kind_of(&at.handle, name)?;
                Some((join(&at.path, name), kind))
            })
        };
        match found {
            Some((mut path, Kind::Directory)) => {
                path.push(b'/');
                self.named.insert(path);
            }
            Some((path, _)) if !directories => {
                self.named.insert(path);
            }
            _ => {}
        }
        Ok(())
    }

    fn walk_below(
        &mut self,
        workspace: &Workspace,
        path: &[u8],
        pattern: Pattern,
        directories: bool,
    ) -> Result<(), Unusable> {
        match resolve(workspace, path)? {
            Some(at) if at.kind == ResolvedKind::Directory => {
                self.walk = Some(Walk {
                    base: Base {
                        root: workspace.directory(),
                        dir: at.handle,
                        path: at.path,
                    },
                    pattern,
                    directories,
                });
            }
            Some(_) => self
                .notes
                .push(format!("`{}` is not a directory.", show(path))),
            None => self
                .notes
                .push(format!("The directory `{}` does not exist.", show(path))),
        }
        Ok(())
    }
}

/// Returns the directory that a relative pattern starts from, spelled for the workspace.
fn start(workspace: &Workspace, path: Option<&str>) -> Result<Vec<u8>, Unusable> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Ok(Vec::new());
    };
    let at = workspace
        .resolve_dir_or_file(path)
        .map_err(|error| Unusable(error.to_string()))?;
    if at.kind != ResolvedKind::Directory {
        return Err(Unusable(format!(
            "`{path}` is not a directory. Give the directory to search in as `path`."
        )));
    }
    Ok(at.path)
}

/// Opens a path; `None` where nothing stands there.
fn resolve(workspace: &Workspace, path: &[u8]) -> Result<Option<Resolved>, Unusable> {
    let path = if path.is_empty() { b"." } else { path };
    match workspace.resolve_dir_or_file(&show(path)) {
        Ok(at) => Ok(Some(at)),
        Err(error) if is_nothing(error.kind()) => Ok(None),
        Err(error) => Err(Unusable(error.to_string())),
    }
}

/// Whether an error says that nothing stands at a path.
fn is_nothing(kind: PathErrorKind) -> bool {
    matches!(kind, PathErrorKind::NotFound | PathErrorKind::NotADirectory)
}

fn join(start: &[u8], path: &[u8]) -> Vec<u8> {
    if start.is_empty() || path.starts_with(b"/") {
        return path.to_vec();
    }
    if path.is_empty() {
        return start.to_vec();
    }
    [start, path].join(&b'/')
}

/// Drops `.` components, repeated slashes and one at the end.
fn tidy(plain: &str) -> String {
    let parts: Vec<_> = (plain.split('/'))
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let slash = if plain.starts_with('/') { "/" } else { "" };
    format!("{slash}{}", parts.join("/"))
}
