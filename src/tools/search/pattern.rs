//! A glob as alternatives of components: what can be matched, which directories can hold it, what it spells out.
//!
//! [`One`] decides whether a path matches. The components tell where a walk may begin, where it may stop, and which
//! names no ignore rule may hide because the caller wrote them.

mod one;

use globset::{Candidate, GlobSet, GlobSetBuilder};

use self::one::{One, check};
use super::braces::expand;
use crate::workspace::walk::Claim;

/// Why a pattern cannot be used; the text is a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in crate::tools) struct BadPattern(pub(in crate::tools) String);

/// One part of a pattern between slashes.
#[derive(Debug, Clone)]
pub(in crate::tools) enum Component {
    /// A name, spelled out.
    Literal(Vec<u8>),
    /// A name with wildcards.
    Wild(One),
    /// `**`.
    Recursive,
}

/// A compiled pattern for paths below a base.
#[derive(Debug)]
pub(in crate::tools) struct Pattern {
    /// Those for which bytes are enough, matched all at once.
    set: GlobSet,
    by_characters: Vec<One>,
    alternatives: Vec<Vec<Component>>,
}

impl Pattern {
    /// Compiles plain alternatives, without braces, each relative to the base.
    ///
    /// # Errors
    /// [`BadPattern`] with the reason.
    pub(in crate::tools) fn new(alternatives: &[String]) -> Result<Self, BadPattern> {
        let mut set = GlobSetBuilder::new();
        let mut by_characters = Vec::new();
        let mut components = Vec::new();
        for text in alternatives {
            match One::new(text)? {
                One::Bytes(glob) => drop(set.add(glob.glob().clone())),
                chars @ One::Chars(_) => by_characters.push(chars),
            }
            components.push(split(text)?);
        }
        Ok(Self {
            set: (set.build()).map_err(|error| BadPattern(error.kind().to_string()))?,
            by_characters,
            alternatives: components,
        })
    }

    /// Whether a path below the base matches, and whether its name is spelled out.
    pub(in crate::tools) fn claim(&self, below: &[u8], name: &[u8]) -> Claim {
        if !self.set.is_match_candidate(&Candidate::from_bytes(below))
            && !self.by_characters.iter().any(|one| one.is_match(below))
        {
            return Claim::No;
        }
        let spelled = self
            .alternatives
            .iter()
            .any(|parts| matches!(parts.last(), Some(Component::Literal(last)) if last == name));
        if spelled {
            Claim::Spelled
        } else {
            Claim::UnlessIgnored
        }
    }

    /// Whether the directory `name`, with `depth` directories above it, can hold a match.
    pub(in crate::tools) fn descend(&self, depth: usize, name: &[u8]) -> Claim {
        self.alternatives
            .iter()
            .map(|parts| descend(parts, depth, name))
            .max()
            .unwrap_or(Claim::No)
    }
}

fn descend(parts: &[Component], depth: usize, name: &[u8]) -> Claim {
    let star = (parts.iter()).position(|part| matches!(part, Component::Recursive));
    if let Some(star) = star
        && depth >= star
    {
        // Below `**` a name may stand at any depth.
        let above_last = parts.get(star..parts.len().saturating_sub(1));
        let spelled = (above_last.unwrap_or_default().iter())
            .any(|part| matches!(part, Component::Literal(literal) if literal == name));
        return if spelled {
            Claim::Spelled
        } else {
            Claim::UnlessIgnored
        };
    }
    if depth + 1 >= parts.len() {
        return Claim::No;
    }
    match parts.get(depth) {
        Some(Component::Literal(literal)) if literal == name => Claim::Spelled,
        Some(Component::Wild(glob)) if glob.is_match(name) => Claim::UnlessIgnored,
        _ => Claim::No,
    }
}

/// Longest pattern: no path is longer, and what a pattern costs to compile grows with it.
const PATTERN_BYTES: usize = 8 * 1024;

/// Returns the plain patterns that a pattern with braces stands for, and for each with brackets the one that takes the
/// brackets as they are written: `app/[id]/page.tsx` is a name more often than a class.
///
/// # Errors
/// [`BadPattern`] for a faulty pattern, or one that stands for more than `most`.
pub(in crate::tools) fn alternatives(text: &str, most: usize) -> Result<Vec<String>, BadPattern> {
    if text.len() > PATTERN_BYTES {
        return Err(BadPattern(format!(
            "it is longer than {PATTERN_BYTES} bytes"
        )));
    }
    check(text)?;
    let mut out = expand(text, most)?;
    let bracketed: Vec<_> = (out.iter())
        .filter(|plain| plain.contains('['))
        .map(|plain| unbracket(plain))
        .filter(|literal| check(literal).is_ok())
        .collect();
    out.extend(bracketed);
    Ok(out)
}

fn unbracket(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                out.push('\\');
                out.extend(chars.next());
            }
            // Braces that are left after expansion stand inside a class.
            '[' | ']' | '{' | '}' => {
                out.push('\\');
                out.push(char);
            }
            other => out.push(other),
        }
    }
    out
}

/// Returns the components that a plain pattern begins with and spells out, and the rest of it.
pub(in crate::tools) fn literal_components(text: &str) -> (Vec<String>, &str) {
    let mut names = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (part, tail) = rest.split_once('/').unwrap_or((rest, ""));
        let Some(name) = unescape(part) else {
            break;
        };
        names.push(name);
        rest = tail;
    }
    (names, rest)
}

/// Returns the name that a component spells out; `None` where it has a wildcard.
fn unescape(part: &str) -> Option<String> {
    let mut name = String::new();
    let mut chars = part.chars();
    while let Some(char) = chars.next() {
        match char {
            '*' | '?' | '[' | '{' => return None,
            '\\' => name.extend(chars.next()),
            plain => name.push(plain),
        }
    }
    Some(name)
}

fn split(text: &str) -> Result<Vec<Component>, BadPattern> {
    text.split('/')
        .map(|part| match unescape(part) {
            _ if part == "**" => Ok(Component::Recursive),
            Some(name) => Ok(Component::Literal(name.into_bytes())),
            None => One::new(part).map(Component::Wild),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_expands(text: &str, expected: &[&str]) {
        assert_eq!(alternatives(text, 100).unwrap(), expected, "{text}");
    }

    #[test]
    fn braces_stand_for_plain_patterns() {
        check_expands("a", &["a"]);
        check_expands("*.{ts,tsx}", &["*.ts", "*.tsx"]);
        check_expands("{man/*.md,lib/*.ts}", &["man/*.md", "lib/*.ts"]);
        check_expands(
            "{a,b{c,d}}/{e,}",
            &["a/e", "a/", "bc/e", "bc/", "bd/e", "bd/"],
        );
        check_expands(r"\{a,b\}", &[r"\{a,b\}"]);
        check_expands("[{,}]x", &["[{,}]x", r"\[\{,\}\]x"]);
    }

    #[test]
    fn brackets_are_also_taken_as_written() {
        check_expands("app/[id]/*.tsx", &["app/[id]/*.tsx", r"app/\[id\]/*.tsx"]);
        let pattern = Pattern::new(&alternatives("app/[id]/*.tsx", 100).unwrap()).unwrap();
        for path in ["app/[id]/a.tsx", "app/i/a.tsx"] {
            assert_eq!(
                pattern.claim(path.as_bytes(), b"a.tsx"),
                Claim::UnlessIgnored
            );
        }
        assert_eq!(pattern.descend(1, b"[id]"), Claim::Spelled);
        assert_eq!(pattern.descend(1, b"d"), Claim::UnlessIgnored);
        assert_eq!(pattern.descend(1, b"x"), Claim::No);
        assert_eq!(pattern.descend(2, b"x"), Claim::No);
    }

    #[test]
    fn faulty_patterns_and_too_many_braces_are_refused() {
        for text in ["{unclosed", "[unclosed", "a[z-a]", "a}b{", "x\\"] {
            assert!(alternatives(text, 100).is_err(), "{text} was taken");
        }
        for many in ["{a,b}", "{a}", "{a,{b,"] {
            for times in [2_000, 200_000] {
                alternatives(&many.repeat(times), 100).unwrap_err();
            }
        }
    }

    #[test]
    fn the_literal_beginning_is_told_from_the_rest() {
        let (names, rest) = literal_components(r"a/\[b\]/c*/d");
        assert_eq!((names, rest), (vec!["a".into(), "[b]".into()], "c*/d"));
        let (names, rest) = literal_components("dist/app.js");
        assert_eq!((names, rest), (vec!["dist".into(), "app.js".into()], ""));
    }
}
