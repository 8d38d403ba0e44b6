//! What is offered, tool by tool, with the reason where something is not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Tool;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::process::{ProcessControl, Processes};
use crate::wire::{
    AdvertisedLimits, Capabilities, CapabilitiesUpdate, Environment, Sandbox, ToolEntry,
};
use crate::workspace::{Confinement, Workspace};

/// What the operator switched off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolPolicy {
    /// Tools that are not offered.
    pub disabled: BTreeSet<Tool>,
    /// Whether `write` and `edit` are not offered.
    pub read_only: bool,
}

/// What was probed on this machine.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The name of the user that calls run as, or the number.
    pub user: String,
    /// The root workspace.
    pub workspace: Workspace,
    /// The process room.
    pub processes: Processes,
    /// Where calls are remembered.
    pub journal: Journal,
}

/// Where bash is looked for when none was found, for the advertisement.
const SHELL_LOOKED_FOR: &str = "/bin/bash";

/// Returns what is to be advertised.
pub fn offer(policy: &ToolPolicy, facts: &Facts, limits: &Limits) -> CapabilitiesUpdate {
    let tools: Vec<ToolEntry> = Tool::ALL
        .into_iter()
        .map(|tool| {
            let reason = why_not(tool, policy, facts);
            ToolEntry {
                name: tool.name().to_owned(),
                available: reason.is_none(),
                reason,
                input_schema: serde_json::from_str(tool.input_schema()).unwrap_or(Value::Null),
            }
        })
        .collect();
    let offered = |tool: Tool| {
        tools
            .iter()
            .any(|entry| entry.name == tool.name() && entry.available)
    };
    let capabilities = Capabilities {
        shell: offered(Tool::Bash),
        files: [Tool::Read, Tool::Glob, Tool::Grep, Tool::ListFiles]
            .into_iter()
            .any(offered),
        computer: false,
    };
    let environment = environment(policy, facts, limits);
    CapabilitiesUpdate {
        capabilities,
        tools,
        environment,
    }
}

fn why_not(tool: Tool, policy: &ToolPolicy, facts: &Facts) -> Option<String> {
    if matches!(tool, Tool::ComputerObserve | Tool::ComputerAction) {
        return Some("this executor does not operate a display".to_owned());
    }
    if policy.disabled.contains(&tool) {
        return Some("the operator switched it off".to_owned());
    }
    if policy.read_only && tool.changes_files() {
        return Some("the workspace is offered read-only".to_owned());
    }
    (tool == Tool::Bash && facts.processes.shell().is_none())
        .then(|| "no bash was found on this machine".to_owned())
}

fn environment(policy: &ToolPolicy, facts: &Facts, limits: &Limits) -> Environment {
    let mut reasons = BTreeMap::new();
    let confinement = match facts.workspace.confinement() {
        Confinement::Openat2 => "openat2",
        Confinement::Walk => {
            reasons.insert(
                "confinement".to_owned(),
                "the kernel offers no openat2 here".to_owned(),
            );
            "walk"
        }
    };
    let process_control = match facts.processes.control() {
        ProcessControl::Cgroup => "cgroup",
        ProcessControl::Subreaper => {
            reasons.insert(
                "process_control".to_owned(),
                "control groups are not used".to_owned(),
            );
            "subreaper"
        }
    };
    let journal = match facts.journal.lost() {
        None => "disk",
        Some(reason) => {
            reasons.insert("journal".to_owned(), reason);
            "memory"
        }
    };
    let shell = facts.processes.shell();
    Environment {
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        shell: shell.map_or(SHELL_LOOKED_FOR.to_owned(), |path| {
            path.display().to_string()
        }),
        user: facts.user.clone(),
        workspace: facts.workspace.shown_root(),
        read_only: policy.read_only,
        sandbox: Sandbox {
            mode: "none".to_owned(),
            filesystem: "unrestricted".to_owned(),
            network: "unrestricted".to_owned(),
            reason: Some("commands run with the rights of this user".to_owned()),
        },
        limits: AdvertisedLimits::from(limits),
        confinement: confinement.to_owned(),
        process_control: process_control.to_owned(),
        journal: journal.to_owned(),
        reasons,
    }
}
