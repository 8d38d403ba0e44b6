//! The messages, by direction; each struct is the `params` of one method.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::call::{object, positive};
use super::inputs::variables;
use super::{ErrorCode, OutputStream, SessionId, ToolCall, ToolCallId, ToolResult};

/// A set of messages that travel in one direction.
pub trait Message: Sized {
    /// Types the `params` of `method`; `None` where the direction has no such method.
    fn from_params(method: &str, params: Value) -> Option<Result<Self, serde_json::Error>>;

    /// Tells what is wrong with `params` that could not be typed, and where: with an eye on where it is, typing takes half as
    /// long again.
    fn fault(method: &str, params: Value) -> Option<serde_path_to_error::Error<serde_json::Error>>;

    /// Returns the method's name on the wire.
    fn method(&self) -> &'static str;

    /// Writes the `params`.
    ///
    /// # Errors
    /// Only what the serializer itself reports.
    fn serialize_params<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

macro_rules! messages {
    ($(#[$doc:meta])* $direction:ident { $($method:literal => $message:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $direction {
            $(#[doc = concat!("`", $method, "`")] $message($message),)+
        }

        impl Message for $direction {
            fn from_params(method: &str, params: Value) -> Option<Result<Self, serde_json::Error>> {
                match method {
                    $($method => Some($message::deserialize(params).map(Self::$message)),)+
                    _ => None,
                }
            }

            fn fault(
                method: &str,
                params: Value,
            ) -> Option<serde_path_to_error::Error<serde_json::Error>> {
                match method {
                    $($method => serde_path_to_error::deserialize::<_, $message>(params).err(),)+
                    _ => None,
                }
            }

            fn method(&self) -> &'static str {
                match self {
                    $(Self::$message(_) => $method,)+
                }
            }

            fn serialize_params<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$message(params) => params.serialize(serializer),)+
                }
            }
        }

        $(impl From<$message> for $direction {
            fn from(params: $message) -> Self {
                Self::$message(params)
            }
        })+
    };
}

messages! {
    /// What a harness sends.
    ToExecutor {
        "harness.welcome" => Welcome,
        "session.open" => SessionOpen,
        "session.close" => SessionClose,
        "tool.call" => ToolCall,
        "tool.cancel" => ToolCancel,
        "tool.result.ack" => ResultAck,
    }
}

messages! {
    /// What the executor sends.
    ToHarness {
        "executor.hello" => Hello,
        "executor.capabilities.update" => CapabilitiesUpdate,
        "executor.drain" => Drain,
        "session.opened" => SessionOpened,
        "session.closed" => SessionClosed,
        "tool.progress" => ToolProgress,
        "tool.result" => ToolResult,
        "protocol.error" => ProtocolError,
    }
}

/// The harness's answer to the hello; a peer that sends none is served as v1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The protocol id that the harness chose.
    pub protocol_version: String,
    /// Who it is.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object"
    )]
    pub harness: Option<HarnessInfo>,
    /// Ping interval it wishes, in milliseconds.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "positive"
    )]
    pub heartbeat_ms: Option<NonZeroU64>,
    /// Largest encoded message it takes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "positive"
    )]
    pub max_message_bytes: Option<NonZeroU64>,
}

/// Name and version of a harness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HarnessInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Opens a session, or takes one over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpen {
    /// The session.
    pub session_id: SessionId,
    /// A directory below the root workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Variables for each command of the session.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "variables"
    )]
    pub env: Option<BTreeMap<String, String>>,
    /// The secret that `session.opened` gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_token: Option<String>,
}

/// Ends a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClose {
    /// The session.
    pub session_id: SessionId,
}

/// Ends a call early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCancel {
    /// The call's session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Says that a result has arrived (v1.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultAck {
    /// The call's session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
}

/// The first message on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The protocol ids served, newest first.
    pub protocol_versions: Vec<String>,
    /// Who this is.
    pub executor: ExecutorInfo,
    /// The environment it serves, where one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<String>,
    /// New for each start of the daemon.
    pub instance_id: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Its bounds.
    pub limits: AdvertisedLimits,
    /// Sessions it holds (only where the executor dials).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Vec<ResumableSession>>,
}

/// Name, system and version of the executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorInfo {
    /// Its name.
    pub name: String,
    /// Its operating system.
    pub os: String,
    /// Its processor architecture.
    pub arch: String,
    /// Its version.
    pub version: String,
}

/// A session that the executor still holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumableSession {
    /// The session.
    pub session_id: SessionId,
    /// Calls that run.
    pub running: Vec<ToolCallId>,
    /// Results that were not acknowledged.
    pub unacked: Vec<ToolCallId>,
}

/// What kinds of tools are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// Commands can be run.
    pub shell: bool,
    /// Files can be read and searched.
    pub files: bool,
    /// A display can be operated.
    pub computer: bool,
}

/// The bounds that a harness may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedLimits {
    /// Calls at one time.
    pub max_concurrent_calls: u64,
    /// Sessions at one time.
    pub max_sessions: u64,
    /// Largest message taken.
    pub max_message_bytes: u64,
    /// Shortest time between two progress messages.
    pub progress_interval_ms: u64,
    /// Memory for results not yet acknowledged.
    pub result_memory_bytes: u64,
    /// From this size bash output becomes a preview.
    pub bash_preview_bytes: u64,
}

/// What is offered now; sent after the hello and whenever it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilitiesUpdate {
    /// In short.
    pub capabilities: Capabilities,
    /// Tool by tool.
    pub tools: Vec<ToolEntry>,
    /// The machine, as probed.
    pub environment: Environment,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolEntry {
    /// Its name.
    pub name: String,
    /// Whether a call would be run.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The schema of its input, as in the contract.
    pub input_schema: Value,
}

/// What may be known about this machine (protocol section 9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Operating system.
    pub os: String,
    /// Processor architecture.
    pub arch: String,
    /// The shell's path.
    pub shell: String,
    /// The user that calls run as.
    pub user: String,
    /// The root workspace.
    pub workspace: String,
    /// Whether write and edit are off.
    pub read_only: bool,
    /// What commands are kept from.
    pub sandbox: Sandbox,
    /// The bounds.
    pub limits: AdvertisedLimits,
    /// `openat2` or `walk`.
    pub confinement: String,
    /// `cgroup` or `subreaper`.
    pub process_control: String,
    /// `disk` or `memory`.
    pub journal: String,
    /// Why a value above is the lesser one, by member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
}

/// What commands are kept from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// `none` or `landlock`.
    pub mode: String,
    /// `unrestricted` or `restricted`.
    pub filesystem: String,
    /// `unrestricted` or `restricted`.
    pub network: String,
    /// Why it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The daemon stops: no new calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Why.
    pub reason: String,
    /// How long running calls have.
    pub deadline_ms: u64,
}

/// A session is open and held by this connection.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionOpened {
    /// The session.
    pub session_id: SessionId,
    /// Its workspace, absolute.
    pub workspace: String,
    /// The secret that takes the session over.
    pub resume_token: String,
}

impl std::fmt::Debug for SessionOpened {
    /// Leaves the secret out, so that it cannot reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionOpened")
            .field("session_id", &self.session_id)
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

/// A session has ended, or another connection took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionClosed {
    /// The session.
    pub session_id: SessionId,
    /// Why.
    pub reason: CloseReason,
    /// Processes that were ended with it.
    pub processes_killed: u64,
}

/// Why a session is no longer this connection's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// `session.close`.
    ClosedByHarness,
    /// Another connection showed its token.
    TakenOver,
    /// It had no connection for too long.
    Expired,
    /// The daemon stops.
    ShuttingDown,
}

/// What a running call tells; best effort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolProgress {
    /// The call's session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Rises with each message of the call; a gap means that one was dropped.
    pub seq: u64,
    /// The text.
    pub message: String,
    /// Where it is command output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<OutputStream>,
    /// Output left out before this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_bytes: Option<u64>,
}

/// A message could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolError {
    /// What to branch on.
    pub code: ErrorCode,
    /// What is wrong.
    pub message: String,
    /// The session, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The call, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
}
