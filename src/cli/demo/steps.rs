//! What the demo calls, and what must come of it.

use serde_json::{Value, json};

use crate::wire::Outcome;

/// One call of the demo, and what must come of it.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) name: &'static str,
    pub(super) input: Value,
    /// Cancel it when its first progress comes.
    pub(super) cancel: bool,
    pub(super) deadline_ms: Option<u64>,
    pub(super) outcome: Outcome,
    pub(super) is_error: bool,
    /// What block 0 must hold.
    pub(super) holds: &'static str,
}

impl Step {
    fn new(title: &'static str, name: &'static str, input: Value, holds: &'static str) -> Self {
        Self {
            title,
            name,
            input,
            cancel: false,
            deadline_ms: None,
            outcome: Outcome::Succeeded,
            is_error: false,
            holds,
        }
    }

    fn ends(self, outcome: Outcome) -> Self {
        Self {
            outcome,
            is_error: true,
            ..self
        }
    }
}

pub(super) fn steps() -> Vec<Step> {
    let program = "fn main() {\n    println!(\"hello\");\n}\n";
    vec![
        Step::new(
            "run a command",
            "bash",
            json!({"command": "echo hi"}),
            "hi\nexit_code: 0",
        ),
        Step::new(
            "write a file, with its directory",
            "write",
            json!({"path": "src/main.rs", "content": program}),
            "(created)",
        ),
        Step::new(
            "read it back",
            "read",
            json!({"path": "src/main.rs"}),
            program,
        ),
        Step::new(
            "change one place",
            "edit",
            json!({"path": "src/main.rs", "old_string": "\"hello\"", "new_string": "\"hello, hands\""}),
            "1 replacement",
        ),
        Step::new(
            "find files by name",
            "glob",
            json!({"pattern": "**/*.rs"}),
            "src/main.rs",
        ),
        Step::new(
            "find lines by content",
            "grep",
            json!({"pattern": "hello, \\w+"}),
            "src/main.rs:2:",
        ),
        Step::new("list a directory", "list_files", json!({}), "src/"),
        Step::new(
            "stream a command",
            "bash",
            json!({"command": "for step in one two three; do echo step $step; sleep 0.3; done"}),
            "step three",
        ),
        Step {
            cancel: true,
            ..Step::new(
                "cancel a command",
                "bash",
                json!({"command": "echo working; sleep 60"}),
                "working",
            )
            .ends(Outcome::Cancelled)
        },
        Step {
            deadline_ms: Some(500),
            ..Step::new(
                "let a deadline pass",
                "bash",
                json!({"command": "echo waiting; sleep 60"}),
                "waiting",
            )
            .ends(Outcome::TimedOut)
        },
        Step::new(
            "give a bad input",
            "bash",
            json!({"comand": "echo hi"}),
            "command",
        )
        .ends(Outcome::Failed),
        Step {
            is_error: true,
            ..Step::new(
                "read what is not there",
                "read",
                json!({"path": "missing.txt"}),
                "missing.txt",
            )
        },
    ]
}
