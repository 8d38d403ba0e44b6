//! What a run was asked for: areas, thoroughness, form of the answer.

use std::path::PathBuf;

/// A request of the command line.
pub(crate) enum Asked {
    /// Measure.
    Measure(Plan),
    /// Name the areas, as a test runner asks for its tests.
    List,
    /// Do nothing: a test runner asks for ignored tests.
    Nothing,
    /// Print the committed figures of the areas.
    Saved(Plan),
}

/// How to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    areas: Vec<String>,
    size: Size,
    /// The daemon's binary.
    pub(crate) daemon: PathBuf,
    /// How to print.
    pub(crate) form: Form,
    /// Whether a missed goal is a failure.
    pub(crate) check: bool,
    /// Whether the figures replace the committed ones.
    pub(crate) save: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// One round, to see that it works.
    Tiny,
    Quick,
    Full,
}

/// The form of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Columns, for a terminal.
    Text,
    /// For the README.
    Markdown,
    /// For programs.
    Json,
}

impl Plan {
    /// Whether an area is to be measured.
    pub(crate) fn wants(&self, area: &str) -> bool {
        let fits = |asked: &String| area == asked || area.starts_with(&format!("{asked}-"));
        self.areas.is_empty() || self.areas.iter().any(fits)
    }

    /// Chooses by thoroughness.
    pub(crate) fn pick<T>(&self, tiny: T, quick: T, full: T) -> T {
        match self.size {
            Size::Tiny => tiny,
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// Reads the command line.
///
/// # Errors
/// A sentence for a word that is neither an area nor a flag.
pub(crate) fn read(words: impl Iterator<Item = String>, areas: &[&str]) -> Result<Asked, String> {
    let mut plan = Plan {
        areas: Vec::new(),
        size: Size::Full,
        daemon: PathBuf::from(env!("CARGO_BIN_EXE_bma-executor")),
        form: Form::Text,
        check: false,
        save: false,
    };
    let (mut benched, mut lists, mut ignored, mut saved) = (false, false, false, false);
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => benched = true,
            "--quick" => plan.size = Size::Quick,
            "--json" => plan.form = Form::Json,
            "--markdown" => plan.form = Form::Markdown,
            "--check" => plan.check = true,
            "--save" => plan.save = true,
            "--daemon" => {
                let path = PathBuf::from(words.next().ok_or("--daemon needs a path")?);
                // It is started in a workspace, where a relative path means another file.
                let found = path.canonicalize();
                plan.daemon =
                    found.map_err(|error| format!("--daemon {}: {error}", path.display()))?;
            }
            // What nextest and `cargo test` say to a test binary.
            "--list" => lists = true,
            "--ignored" => ignored = true,
            "--format" => drop(words.next()),
            "--exact" | "--nocapture" | "--no-capture" => {}
            "saved" => saved = true,
            area if areas
                .iter()
                .any(|name| *name == area || name.starts_with(&format!("{area}-"))) =>
            {
                plan.areas.push(word);
            }
            other => {
                return Err(format!(
                    "`{other}` is neither an area ({}, saved) nor one of --quick, --json, --markdown, --check, --save, --daemon PATH",
                    areas.join(", ")
                ));
            }
        }
    }
    if !benched {
        plan.size = Size::Tiny;
    }
    Ok(match (ignored, lists, saved) {
        (true, _, _) => Asked::Nothing,
        (_, true, _) => Asked::List,
        (_, _, true) => Asked::Saved(plan),
        _ => Asked::Measure(plan),
    })
}
