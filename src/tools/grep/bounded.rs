//! The compiled pattern, as a matcher that heeds the stop within any file.
//!
//! The fast engine cannot be interrupted, and on a costly pattern its time grows with the pattern's size times the
//! text's. So it gets the text in windows of whole lines that it surely gets through soon; a line, or a text matched
//! across lines, that is longer than a window goes to the [`Simulation`], which can be stopped anywhere. Both find the
//! same matches.

use std::sync::Arc;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures};
use grep_regex::RegexMatcher;
use regex_automata::nfa::thompson::NFA;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::simulation::{Halted, Simulation};
use crate::stop::Stop;

/// A pattern for one search.
#[derive(Debug)]
pub(super) struct Bounded {
    pattern: Arc<Compiled>,
    /// A copy with buffers of its own.
    fast: RegexMatcher,
    stop: Stop,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Compiled {
    fast: RegexMatcher,
    by_line: bool,
    weight: usize,
    /// Bytes that the fast engine surely gets through soon.
    window: usize,
    hir: Hir,
    nfa_bytes: usize,
    /// Made when a text needs it first.
    nfa: std::sync::OnceLock<Option<NFA>>,
}

impl Compiled {
    /// Takes a matcher and the same pattern as an expression; `steps` is what the fast engine may do in one go.
    pub(super) fn new(fast: RegexMatcher, hir: Hir, steps: usize, nfa_bytes: usize) -> Self {
        Self {
            by_line: fast.line_terminator().is_some(),
            weight: weight(&hir),
            window: steps / weight(&hir).max(1),
            fast,
            hir,
            nfa_bytes,
            nfa: std::sync::OnceLock::new(),
        }
    }

    /// About how many of its states can be alive at one place of a text.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    fn nfa(&self) -> Option<&NFA> {
        let build = || Simulation::compile(&self.hir, self.nfa_bytes);
        self.nfa.get_or_init(build).as_ref()
    }
}

/// Returns about how many states of a pattern can be alive at one place of a text.
fn weight(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A character has at most four bytes, each with a state of its own.
        HirKind::Class(Class::Unicode(class)) => class.maximum_len().unwrap_or(4).max(1),
        HirKind::Repetition(repetition) => {
            let least = repetition.min.saturating_add(1);
            let times = repetition.max.unwrap_or(least).max(1);
            let times = usize::try_from(times).unwrap_or(usize::MAX);
            weight(&repetition.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => weight(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            (parts.iter().map(weight)).fold(0, usize::saturating_add)
        }
    }
}

/// What is to be searched next.
enum Piece {
    /// Whole lines up to this end, or all that is left.
    Window(usize),
    /// A line, or a text that cannot be split, up to this end: without its line break.
    Long(usize),
}

impl Bounded {
    pub(super) fn new(pattern: Arc<Compiled>, stop: Stop) -> Self {
        Self {
            fast: pattern.fast.clone(),
            pattern,
            stop,
        }
    }

    /// Whether matches may span lines.
    pub(super) fn spans_lines(&self) -> bool {
        !self.pattern.by_line
    }

    fn piece(&self, text: &[u8], from: usize) -> Piece {
        let window = self.pattern.window;
        let rest = text.get(from..).unwrap_or_default();
        if rest.len() <= window {
            return Piece::Window(text.len());
        }
        if !self.pattern.by_line {
            return Piece::Long(text.len());
        }
        let (head, tail) = rest.split_at_checked(window).unwrap_or((rest, b""));
        match memchr::memrchr(b'\n', head) {
            Some(at) => Piece::Window(from + at + 1),
            None => {
                Piece::Long(memchr::memchr(b'\n', tail).map_or(text.len(), |at| from + window + at))
            }
        }
    }

    /// Returns the first match that begins at `from` or later.
    fn search(&self, text: &[u8], mut from: usize) -> Result<Option<Match>, Halted> {
        while from <= text.len() {
            if self.stop.cause().is_some() {
                return Err(Halted);
            }
            match self.piece(text, from) {
                Piece::Window(end) => {
                    let found =
                        infallible((self.fast).find_at(text.get(..end).unwrap_or(text), from));
                    if end == text.len() {
                        return Ok(found);
                    }
                    // An empty match at the end belongs to the next line, where it is judged with what follows.
                    if let Some(found) = found.filter(|found| found.start() < end) {
                        return Ok(Some(found));
                    }
                    from = end;
                }
                Piece::Long(end) => {
                    let found = match self.pattern.nfa() {
                        Some(nfa) => Simulation::new(nfa).find(text, from, end, &self.stop)?,
                        None => return Ok(infallible(self.fast.find_at(text, from))),
                    };
                    if let Some((start, end)) = found {
                        return Ok(Some(Match::new(start, end)));
                    }
                    from = end + 1;
                }
            }
        }
        Ok(None)
    }
}

fn infallible<T>(result: Result<T, grep_matcher::NoError>) -> T
where
    T: Default,
{
    // The fast engine has no errors.
    result.unwrap_or_default()
}

impl Matcher for Bounded {
    type Captures = NoCaptures;
    type Error = Halted;

    fn find_at(&self, text: &[u8], from: usize) -> Result<Option<Match>, Halted> {
        self.search(text, from)
    }

    fn new_captures(&self) -> Result<NoCaptures, Halted> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, text: &[u8], from: usize) -> Result<Option<usize>, Halted> {
        if text.len().saturating_sub(from) <= self.pattern.window {
            return Ok(infallible(self.fast.shortest_match_at(text, from)));
        }
        Ok(self.search(text, from)?.map(|found| found.end()))
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.fast.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.fast.line_terminator()
    }

    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, Halted> {
        let mut from = 0;
        while from <= text.len() {
            if self.stop.cause().is_some() {
                return Err(Halted);
            }
            let end = match self.piece(text, from) {
                Piece::Window(end) => end,
                // The engine asks again about this line alone.
                Piece::Long(_) => return Ok(Some(LineMatchKind::Candidate(from))),
            };
            let lines = text.get(from..end).unwrap_or_default();
            let found = infallible(self.fast.find_candidate_line(lines));
            let at = |offset: usize| offset + from;
            match found {
                Some(LineMatchKind::Confirmed(offset)) if at(offset) < end || end == text.len() => {
                    return Ok(Some(LineMatchKind::Confirmed(at(offset))));
                }
                Some(LineMatchKind::Candidate(offset)) if at(offset) < end || end == text.len() => {
                    return Ok(Some(LineMatchKind::Candidate(at(offset))));
                }
                _ if end == text.len() => return Ok(None),
                _ => from = end,
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use grep_regex::RegexMatcherBuilder;
    use proptest::prelude::*;

    use super::*;

    fn start(pattern: &str, by_line: bool, steps: usize) -> Bounded {
        let (fast, hir) = super::super::matcher::compile(
            RegexMatcherBuilder::new().multi_line(true),
            pattern,
            false,
            by_line,
        )
        .unwrap();
        let pattern = Compiled::new(fast, hir, steps, 1 << 20);
        Bounded::new(Arc::new(pattern), Stop::new())
    }

    fn all(matcher: &Bounded, text: &[u8]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        matcher
            .find_iter(text, |at| {
                found.push((at.start(), at.end()));
                true
            })
            .unwrap();
        found
    }

    const PATTERNS: [&str; 18] = [
        "a",
        "ab|a",
        "a|ab",
        "a*",
        "a+?b?",
        "^",
        "$",
        "^a$",
        r"\ba",
        r"a\b",
        r"\Bé",
        r"\w+",
        "é|b",
        ".",
        "[^a]+",
        "(a|b)*é$",
        r"\r$",
        "a{2,3}?(b|é)",
    ];

    proptest! {
        #[test]
        fn small_windows_and_the_simulation_find_what_the_fast_engine_finds(
            text in proptest::collection::vec(
                prop_oneof![Just("a"), Just("b"), Just("é"), Just("\n"), Just("\r\n"), Just(" "), Just("\r")], 0..40,
            ),
            which in 0..PATTERNS.len(), steps in 1_usize..60, by_line in any::<bool>(),
        ) {
            let text = text.concat();
            let pattern = PATTERNS[which];
            let fast = start(pattern, by_line, usize::MAX);
            let slow = start(pattern, by_line, steps);
            prop_assert_eq!(all(&slow, text.as_bytes()), all(&fast, text.as_bytes()), "{}", pattern);
        }
    }

    #[test]
    fn a_search_is_stopped_in_the_middle_of_a_line() {
        let matcher = start("[ab]*a[ab]{300}c", true, 1_000_000);
        let text = "ab".repeat(2_000_000);
        let stop = matcher.stop.clone();
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| matcher.find(text.as_bytes()));
            while begun.elapsed().as_millis() < 50 {
                std::thread::yield_now();
            }
            stop.trigger(crate::stop::StopCause::Cancelled);
            running.join().unwrap().unwrap_err();
        });
        assert!(begun.elapsed().as_millis() < 1_000, "{:?}", begun.elapsed());
    }
}
