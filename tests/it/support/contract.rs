//! `contracts/` as validators.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jsonschema::{Registry, Resource, Validator};
use serde_json::Value;

/// The directory of the contract.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contracts")
}

/// Reads a JSON file.
pub fn read_json(path: &Path) -> Value {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below a directory, in order.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Validators by name: `tool.call`, `tools/bash.input`, `tools/bash.details`.
pub static SCHEMAS: LazyLock<BTreeMap<String, Validator>> = LazyLock::new(|| {
    let executor = root().join("executor");
    let schemas: Vec<(String, Value)> = files_below(&executor)
        .into_iter()
        .filter_map(|path| {
            let name = path
                .strip_prefix(&executor)
                .unwrap()
                .to_str()
                .unwrap()
                .strip_suffix(".schema.json")?
                .to_owned();
            Some((name, read_json(&path)))
        })
        .collect();
    let mut registry = Registry::new();
    for (_, schema) in &schemas {
        let id = schema["$id"]
            .as_str()
            .expect("each schema has an `$id`")
            .to_owned();
        registry = registry
            .add(id, Resource::from_contents(schema.clone()))
            .expect("an `$id` is a URI");
    }
    let registry = registry.prepare().expect("the references resolve");
    schemas
        .iter()
        .map(|(name, schema)| {
            let validator = jsonschema::options()
                .with_registry(&registry)
                .build(schema)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            (name.clone(), validator)
        })
        .collect()
});

/// Says what a schema finds wrong with a value.
pub fn faults(schema: &str, value: &Value) -> Vec<String> {
    let validator = SCHEMAS
        .get(schema)
        .unwrap_or_else(|| panic!("no schema `{schema}`"));
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Fails unless a frame is as the contract says.
#[track_caller]
pub fn check_frame(frame: &Value) {
    let method = frame["method"]
        .as_str()
        .unwrap_or_else(|| panic!("a frame without method: {frame}"));
    let faults = faults(method, frame);
    assert!(
        faults.is_empty(),
        "`{method}` breaks the contract: {faults:?}\n{frame:#}"
    );
}

/// Fails unless the details of a result are as the contract says.
#[track_caller]
pub fn check_details(tool: &str, details: &Value) {
    let faults = faults(&format!("tools/{tool}.details"), details);
    assert!(
        faults.is_empty(),
        "details of `{tool}` break the contract: {faults:?}\n{details:#}"
    );
}
