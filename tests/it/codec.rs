//! The codec, by property.

use bma_executor::wire::{
    ContentBlock, DeadlineMs, Outcome, Refusal, SessionId, ToExecutor, ToHarness, ToolCall,
    ToolCallId, ToolResult, decode, decode_to_harness, encode,
};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn id() -> impl Strategy<Value = String> {
    "[^\\p{Cc}]{1,128}"
}

/// JSON values as deep and odd as an input may be.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn members() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(any::<String>(), json_value(), 0..6)
        .prop_map(|members| members.into_iter().collect())
}

proptest! {
    #[test]
    fn a_call_survives_being_spelled_and_typed(
        session in id(), call in id(), name in any::<String>(), input in members(), deadline in prop::option::of(1u64..),
    ) {
        let call = ToExecutor::from(ToolCall {
            session_id: SessionId::new(&session).unwrap(),
            tool_call_id: ToolCallId::new(&call).unwrap(),
            name,
            input,
            deadline_ms: deadline.and_then(DeadlineMs::new),
            permission: None,
            traceparent: None,
        });
        prop_assert_eq!(decode(&encode(&call).unwrap()), Ok(call));
    }

    #[test]
    fn a_result_survives_being_spelled_and_typed(session in id(), call in id(), text in any::<String>(), details in json_value()) {
        let result = ToHarness::from(ToolResult {
            session_id: SessionId::new(&session).unwrap(),
            tool_call_id: ToolCallId::new(&call).unwrap(),
            outcome: Outcome::Succeeded,
            is_error: false,
            content: vec![ContentBlock::text(text)],
            error: None,
            // Null stands for an absent member.
            details: Some(details).filter(|details| !details.is_null()),
        });
        prop_assert_eq!(decode_to_harness(&encode(&result).unwrap()), Ok(result));
    }

    #[test]
    fn no_text_at_all_brings_the_decoder_down(text in any::<String>()) {
        prop_assert!(decode(&text).is_err());
    }

    /// Wherever a call breaks off after its ids, its answer goes to these ids.
    #[test]
    fn a_broken_call_keeps_its_ids(session in id(), call in id(), rest in any::<String>()) {
        let head = format!(
            r#"{{"method":"tool.call","params":{{"session_id":{},"tool_call_id":{},"name":"bash","input":{{"command":"#,
            Value::from(session.as_str()), Value::from(call.as_str()),
        );
        match decode(&format!("{head}{rest}")) {
            Err(Refusal::Call { session_id, tool_call_id, .. }) => {
                prop_assert_eq!(session_id.as_str(), session);
                prop_assert_eq!(tool_call_id.as_str(), call);
            }
            // The rest may give an id once more, and then neither can be relied on.
            other => prop_assert!(rest.contains("_id"), "{:?}", other),
        }
    }
}
