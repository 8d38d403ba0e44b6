//! The dialling side: one connection to the harness, made again for ever (protocol section 7).

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::connection::{self, End};
use super::dial::{DialError, Target};
use crate::dispatch::Hub;
use crate::health::Harness;
use crate::limits::Limits;

/// Close code of a harness that has a newer executor for this environment.
const REPLACED: u16 = 4409;

/// Close code of a harness that does not want this executor (RFC 6455 section 7.4.1: policy violation).
const UNWANTED: u16 = 1008;

/// Keeps a connection to the harness until `stop`. `connected` is called each time one is established.
///
/// # Errors
/// The kernel gives no random bytes.
pub(super) async fn keep_connected(
    target: Target,
    hub: Hub,
    limits: Arc<Limits>,
    stop: CancellationToken,
    connected: impl Fn(),
) -> io::Result<()> {
    let (mut failures, mut connections) = (0, 0_u64);
    let missing = |why: &str| hub.health().set_harness(Harness::Missing(why.to_owned()));
    missing("it has not been dialled yet");
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let next = match target.dial(&limits, limits.max_inbound_bytes).await {
            Ok(socket) => {
                tracing::info!(harness = target.shown(), "connected to the harness");
                let connection = hub.attach();
                hub.metrics().reconnects.add(u64::from(connections > 0));
                connections += 1;
                hub.health().set_harness(Harness::Connected);
                let heard = connection.heard();
                connected();
                let end = connection::run(socket, connection, &limits).await;
                // Reset only by a session that was really established: a server that accepts and closes at once must not be hammered.
                if heard.get() || begun.elapsed() >= limits.established_after {
                    failures = 0;
                }
                missing(why_ended(&end));
                after_end(&end)
            }
            Err(error) => {
                hub.metrics().dial_failures.add(1);
                missing(&why_not_made(&error));
                after_failure(&error)
            }
        };
        if stop.is_cancelled() {
            break;
        }
        let pause = pause(next, failures, &limits)?;
        failures = failures.saturating_add(1);
        tracing::info!(
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "dialling again after a pause"
        );
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    Ok(())
}

/// How soon to dial again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// After the usual back-off.
    Soon,
    /// Only after a long pause: this executor is not wanted as it is.
    Late,
}

/// Says why there is no connection any more, without a word of the peer's.
fn why_ended(end: &End) -> &'static str {
    match end {
        End::Closed(Some(REPLACED)) => "the harness has a newer executor for this environment",
        End::Closed(Some(UNWANTED)) => "the harness does not want this executor (close code 1008)",
        End::Closed(_) => "the harness closed the connection",
        End::ClosedHere(_) => "the executor closed the connection",
        End::Dead => "the connection gave no sign of life",
        End::Failed(_) => "the connection failed",
    }
}

/// Says why no connection was made, without a word of the peer's.
fn why_not_made(error: &DialError) -> String {
    match error {
        DialError::Refused {
            status: 401 | 403, ..
        } => "the harness refuses the credentials".to_owned(),
        DialError::Refused { status, .. } => {
            format!("the harness refused with HTTP status {status}")
        }
        DialError::Resolve(_)
        | DialError::Connect(_)
        | DialError::Plaintext
        | DialError::Tls(_)
        | DialError::Handshake(_)
        | DialError::Timeout => error.to_string(),
    }
}

fn after_end(end: &End) -> Next {
    match end {
        End::Closed(Some(REPLACED)) => {
            tracing::warn!("the harness has a newer executor for this environment");
            Next::Late
        }
        End::Closed(Some(UNWANTED)) => {
            tracing::error!(
                "the harness closed with 1008: it does not want this executor; check its key and its environment"
            );
            Next::Late
        }
        End::Closed(code) => {
            tracing::warn!(?code, "the harness closed the connection");
            Next::Soon
        }
        End::ClosedHere(close) => {
            tracing::warn!(
                code = close.code,
                reason = close.reason,
                "the connection was closed"
            );
            Next::Soon
        }
        End::Dead => {
            tracing::warn!("the connection gave no sign of life");
            Next::Soon
        }
        End::Failed(error) => {
            tracing::warn!(%error, "the connection failed");
            Next::Soon
        }
    }
}

fn after_failure(error: &DialError) -> Next {
    let reason = match error {
        // Its body is the peer's text, which is not for the log.
        DialError::Refused { .. } => why_not_made(error),
        DialError::Resolve(_)
        | DialError::Connect(_)
        | DialError::Plaintext
        | DialError::Tls(_)
        | DialError::Handshake(_)
        | DialError::Timeout => crate::telemetry::chain(error),
    };
    match error {
        DialError::Refused {
            status: 401 | 403, ..
        } => {
            tracing::error!(
                reason,
                "the harness refuses the credentials; check BMA_ENVIRONMENT_KEY or --key-file"
            );
            Next::Late
        }
        DialError::Plaintext => {
            tracing::error!(reason, "the harness cannot be dialled");
            Next::Late
        }
        DialError::Resolve(_)
        | DialError::Connect(_)
        | DialError::Tls(_)
        | DialError::Refused { .. }
        | DialError::Handshake(_)
        | DialError::Timeout => {
            tracing::warn!(reason, "the harness cannot be reached");
            Next::Soon
        }
    }
}

/// Returns how long to wait: full jitter below a bound that doubles with each failure, so that many executors do not
/// knock together after an outage.
fn pause(next: Next, failures: u32, limits: &Limits) -> io::Result<Duration> {
    let random = f64::from(getrandom::u32().map_err(io::Error::other)?) / f64::from(u32::MAX);
    Ok(match next {
        Next::Soon => {
            let bound = limits
                .redial_first
                .saturating_mul(2_u32.saturating_pow(failures.min(16)));
            bound.min(limits.redial_most).mul_f64(random)
        }
        Next::Late => limits.redial_most.mul_f64(1.0 + random),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_to_its_bound_and_is_spread_over_all_of_it() {
        let limits = Limits::default();
        for failures in [0, 1, 5, 6, 40, u32::MAX] {
            let bound =
                Duration::from_millis(500 * 2_u64.pow(failures.min(6))).min(limits.redial_most);
            let pauses: Vec<_> = (0..200)
                .map(|_| pause(Next::Soon, failures, &limits).unwrap())
                .collect();
            assert!(pauses.iter().all(|pause| *pause <= bound), "{failures}");
            assert!(
                pauses.iter().any(|pause| *pause < bound / 4)
                    && pauses.iter().any(|pause| *pause > bound * 3 / 4)
            );
        }
        let late: Vec<_> = (0..200)
            .map(|_| pause(Next::Late, 0, &limits).unwrap())
            .collect();
        assert!(
            late.iter()
                .all(|pause| (30..=60).contains(&pause.as_secs())),
            "{late:?}"
        );
    }
}
