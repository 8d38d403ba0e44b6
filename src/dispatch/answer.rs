//! Shapes what a call came to into the one result of the contract.

use crate::stop::StopCause;
use crate::tools::ToolOutput;
use crate::wire::{
    ContentBlock, Details, EndCause, ErrorBody, ErrorCode, Outcome, SessionId, ToolCallId,
    ToolResult,
};

/// An answer without its ids.
#[derive(Debug)]
pub(super) struct Answer {
    outcome: Outcome,
    is_error: bool,
    content: Vec<ContentBlock>,
    error: Option<ErrorBody>,
    details: Option<Details>,
    /// What ended a command.
    cause: Option<EndCause>,
}

impl Answer {
    /// The call could not be run as asked.
    pub(super) fn failed(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            outcome: Outcome::Failed,
            is_error: true,
            content: vec![ContentBlock::text(message.clone())],
            error: Some(ErrorBody {
                code,
                message,
                retry_after_ms: None,
            }),
            details: None,
            cause: None,
        }
    }

    /// The call was stopped before anything of it ran.
    pub(super) fn stopped_before(cause: StopCause) -> Self {
        Self::stopped(
            cause,
            Vec::new(),
            None,
            "before it started; nothing was run",
        )
    }

    /// The daemon died while the call ran.
    pub(super) fn interrupted() -> Self {
        let message = "the executor was ended by force while this call ran, so what the call did is not known; it is not run \
             again by itself: look at the workspace before you make a new call of it"
            .to_owned();
        Self {
            outcome: Outcome::Unknown,
            is_error: true,
            content: vec![ContentBlock::text(message.clone())],
            error: Some(ErrorBody {
                code: ErrorCode::OutcomeUnknown,
                message,
                retry_after_ms: None,
            }),
            details: None,
            cause: None,
        }
    }

    /// The tool returned.
    pub(super) fn from_output(output: ToolOutput) -> Self {
        let cause = match &output.details {
            Some(Details::Bash(bash)) => Some(bash.cause),
            _ => None,
        };
        let details = output.details;
        let mut content = output.content;
        content.retain(|block| !matches!(block, ContentBlock::Text { text } if text.is_empty()));
        if let Some(stop) = output.stopped {
            let mut stopped = Self::stopped(
                stop,
                content,
                details,
                "before it was done; what there was of it is above",
            );
            stopped.cause = cause;
            return stopped;
        }
        if content.is_empty() {
            content.push(ContentBlock::text("(no output)"));
        }
        Self {
            outcome: Outcome::Succeeded,
            is_error: output.is_error,
            content,
            error: None,
            details,
            cause,
        }
    }

    fn stopped(
        cause: StopCause,
        mut content: Vec<ContentBlock>,
        details: Option<Details>,
        when: &str,
    ) -> Self {
        let (outcome, code, what) = match cause {
            StopCause::Cancelled => (
                Outcome::Cancelled,
                ErrorCode::Cancelled,
                "the call was cancelled",
            ),
            StopCause::SessionClosed => (
                Outcome::Cancelled,
                ErrorCode::SessionClosed,
                "the session was closed and the call ended",
            ),
            StopCause::Deadline => (
                Outcome::TimedOut,
                ErrorCode::DeadlineExceeded,
                "the call's deadline passed",
            ),
            StopCause::Shutdown => (
                Outcome::Cancelled,
                ErrorCode::ShuttingDown,
                "the executor stopped the call, as it stops itself,",
            ),
        };
        let when = if content.is_empty() && details.is_none() && when.ends_with("above") {
            "before it had anything to show"
        } else {
            when
        };
        let message = format!("{what} {when}");
        content.push(ContentBlock::text(message.clone()));
        Self {
            outcome,
            is_error: true,
            content,
            error: Some(ErrorBody {
                code,
                message,
                retry_after_ms: None,
            }),
            details,
            cause: None,
        }
    }

    /// Says when trying again may help.
    pub(super) fn retry_after(mut self, after: Option<std::time::Duration>) -> Self {
        if let (Some(error), Some(after)) = (&mut self.error, after) {
            error.retry_after_ms = u64::try_from(after.as_millis()).ok();
        }
        self
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome
    }

    pub(super) fn is_error(&self) -> bool {
        self.is_error
    }

    pub(super) fn code(&self) -> Option<ErrorCode> {
        self.error.as_ref().map(|error| error.code)
    }

    /// Returns why a command ended.
    pub(super) fn cause(&self) -> Option<&'static str> {
        self.cause.map(EndCause::name)
    }

    pub(super) fn into_result(
        self,
        session_id: SessionId,
        tool_call_id: ToolCallId,
    ) -> ToolResult<Details> {
        let Self {
            outcome,
            is_error,
            content,
            error,
            details,
            cause: _,
        } = self;
        ToolResult {
            session_id,
            tool_call_id,
            outcome,
            is_error,
            content,
            error,
            details,
        }
    }
}

/// Makes the small result that stands for one that was too large to keep or to send.
pub(super) fn too_large(
    session_id: SessionId,
    tool_call_id: ToolCallId,
    why: &str,
) -> ToolResult<Details> {
    Answer::failed(
        ErrorCode::ResultTooLarge,
        format!("the call has ended, but its result is not here any more: {why}; do not assume that it did nothing"),
    )
    .into_result(session_id, tool_call_id)
}
