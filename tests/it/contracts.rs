//! The contract against itself and against the types.

use std::collections::BTreeMap;
use std::path::Path;

use bma_executor::dispatch::Tool;
use bma_executor::wire::{ErrorCode, decode, decode_to_harness, encode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::contract::{SCHEMAS, faults, files_below, read_json, root};

/// The methods that a harness sends; the others are the executor's.
const TO_EXECUTOR: [&str; 6] = [
    "harness.welcome",
    "session.open",
    "session.close",
    "tool.call",
    "tool.cancel",
    "tool.result.ack",
];

/// Each example as (schema, file name, content).
fn examples(kind: &str) -> Vec<(String, String, Value)> {
    let directory = root().join("executor/examples").join(kind);
    let examples: Vec<_> = files_below(&directory)
        .into_iter()
        .map(|path| {
            let schema = path.parent().unwrap().strip_prefix(&directory).unwrap();
            (
                schema.to_str().unwrap().to_owned(),
                path.display().to_string(),
                read_json(&path),
            )
        })
        .collect();
    assert!(
        examples.len() > 50,
        "only {} examples are {kind}",
        examples.len()
    );
    examples
}

fn is_message(schema: &str) -> bool {
    !schema.starts_with("tools/")
}

/// Types a message with the decoder of its direction and spells it again.
fn through_types(schema: &str, message: &Value) -> Result<Value, String> {
    let text = message.to_string();
    let spelled = if TO_EXECUTOR.contains(&schema) {
        encode(&decode(&text).map_err(|refusal| format!("{refusal:?}"))?)
    } else {
        encode(&decode_to_harness(&text)?)
    };
    serde_json::from_str(&spelled.unwrap()).map_err(|error| error.to_string())
}

/// Types a tool's input; `None` where the tool is not built.
fn through_input(schema: &str, input: &Value) -> Option<Result<(), String>> {
    let name = schema.strip_prefix("tools/")?.strip_suffix(".input")?;
    if name.starts_with("computer_") {
        return None;
    }
    let Value::Object(members) = input.clone() else {
        return Some(Err("not an object".to_owned()));
    };
    let tool = Tool::from_name(name).expect("each input schema belongs to a tool");
    Some(
        tool.decode(members)
            .map(drop)
            .map_err(|error| error.to_string()),
    )
}

#[test]
fn every_valid_example_is_taken_by_its_schema_and_by_the_types() {
    for (schema, file, example) in examples("valid") {
        let faults = faults(&schema, &example);
        assert!(faults.is_empty(), "{file}: {faults:?}");
        if let Some(Err(error)) = through_input(&schema, &example) {
            panic!("{file}: the input type refuses it: {error}");
        }
        if is_message(&schema) {
            let again =
                through_types(&schema, &example).unwrap_or_else(|error| panic!("{file}: {error}"));
            let mut known = example.clone();
            if TO_EXECUTOR.contains(&schema.as_str()) {
                // Unknown members and nulls are ignored, so they do not come back.
                keep_known(&mut known["params"], &again["params"]);
                known =
                    json!({"jsonrpc": "2.0", "method": known["method"], "params": known["params"]});
            }
            assert_eq!(again, known, "{file} changes on its way through the types");
        }
    }
}

/// Removes members that the decoded form does not have, but for those inside free-form objects.
fn keep_known(value: &mut Value, known: &Value) {
    if let (Value::Object(members), Value::Object(known)) = (value, known) {
        // A `traceparent` that is none is ignored whatever it is.
        let ignored = |name: &str, value: &Value| value.is_null() || name == "traceparent";
        members.retain(|name, value| {
            known.contains_key(name) || !ignored(name, value) && name == "input"
        });
        for (name, value) in members {
            keep_known(value, &known[name]);
        }
    }
}

#[test]
fn every_invalid_example_is_refused_by_its_schema_and_by_the_types() {
    for (schema, file, example) in examples("invalid") {
        assert!(
            example["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{file} does not say why"
        );
        let instance = &example["instance"];
        assert!(
            !faults(&schema, instance).is_empty(),
            "{file} is taken by its schema"
        );
        if let Some(Ok(())) = through_input(&schema, instance) {
            panic!("{file} is taken by the input type");
        }
        if TO_EXECUTOR.contains(&schema.as_str()) && through_types(&schema, instance).is_ok() {
            panic!("{file} is taken by the types");
        }
    }
}

#[test]
fn every_schema_has_valid_and_invalid_examples() {
    let mut count: BTreeMap<&str, (usize, usize)> =
        SCHEMAS.keys().map(|name| (name.as_str(), (0, 0))).collect();
    count.remove("common");
    let (valid, invalid) = (examples("valid"), examples("invalid"));
    for (schema, file, _) in &valid {
        count
            .get_mut(schema.as_str())
            .unwrap_or_else(|| panic!("{file} has no schema"))
            .0 += 1;
    }
    for (schema, file, _) in &invalid {
        count
            .get_mut(schema.as_str())
            .unwrap_or_else(|| panic!("{file} has no schema"))
            .1 += 1;
    }
    for (schema, (valid, invalid)) in count {
        assert!(
            valid > 0 && invalid > 0,
            "{schema} has {valid} valid and {invalid} invalid examples"
        );
    }
}

#[test]
fn the_error_codes_of_schema_table_and_type_are_the_same() {
    let common = read_json(&root().join("executor/common.schema.json"));
    let table = read_json(&root().join("executor/error-codes.json"));
    let wide: Vec<&str> = strings(&common["$defs"]["protocolErrorCode"]["enum"]);
    let narrow: Vec<&str> = strings(&common["$defs"]["errorCode"]["enum"]);
    let text = table.to_string();
    for code in &wide {
        assert!(
            text.contains(&format!("\"{code}\"")),
            "{code} is not explained"
        );
        serde_json::from_value::<ErrorCode>(json!(code))
            .unwrap_or_else(|error| panic!("{code}: {error}"));
    }
    assert!(narrow.iter().all(|code| wide.contains(code)));
    let unknown = serde_json::from_value::<ErrorCode>(json!("no_such_code"))
        .unwrap_err()
        .to_string();
    for code in &wide {
        assert!(
            unknown.contains(&format!("`{code}`")),
            "the type does not know {code}: {unknown}"
        );
    }
    assert_eq!(
        unknown.matches('`').count() / 2,
        wide.len() + 1,
        "the type knows more codes than the contract: {unknown}"
    );
}

fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item.as_str().unwrap())
        .collect()
}

/// Set this variable to write the lock anew after a change of the contract.
const UPDATE: &str = "UPDATE_CONTRACT_LOCK";

#[test]
fn the_lock_holds_the_digest_of_every_file() {
    let path = root().join("lock.json");
    let mut lock = read_json(&path);
    let files: BTreeMap<String, String> = files_below(&root())
        .into_iter()
        .filter(|file| *file != path)
        .map(|file| (relative(&file), digest(&file)))
        .collect();
    if std::env::var_os(UPDATE).is_some() {
        lock["files"] = json!(files);
        std::fs::write(&path, format!("{lock:#}\n")).unwrap();
    }
    let locked: BTreeMap<String, String> = serde_json::from_value(lock["files"].clone()).unwrap();
    for (file, digest) in &files {
        assert_eq!(
            locked.get(file),
            Some(digest),
            "{file} is not as locked; where the change is meant, set {UPDATE}=1 once"
        );
    }
    assert_eq!(
        locked.len(),
        files.len(),
        "the lock names files that are gone"
    );
    assert_eq!(lock["protocol"], bma_executor::wire::PROTOCOL_VERSIONS[0]);
}

fn relative(file: &Path) -> String {
    file.strip_prefix(root())
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}

fn digest(file: &Path) -> String {
    Sha256::digest(std::fs::read(file).unwrap())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
