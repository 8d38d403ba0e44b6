//! The listening side: who may connect, and a task for each connection.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, End};
use super::line::SharedSocket;
use super::link::{Link, socket_config};
use super::plain::Spare;
use crate::dispatch::Hub;
use crate::limits::Limits;
use crate::wire::PROTOCOL_VERSIONS;

/// Who may connect.
#[derive(Clone, Default)]
pub struct Access {
    /// The bearer key; without one everybody who reaches the socket may connect.
    pub key: Option<String>,
    /// Values of `Origin` that are let in. Any other is refused: a web page must not drive an executor.
    pub allowed_origins: Vec<String>,
}

impl std::fmt::Debug for Access {
    /// Leaves the key out, so that it cannot reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("key", &self.key.is_some())
            .field("allowed_origins", &self.allowed_origins)
            .finish()
    }
}

/// Accepts connections until `stop`, then waits until the last has ended.
///
/// # Errors
/// The listener itself fails; a failure of one connection ends that connection only.
pub(super) async fn accept(
    listener: std::net::TcpListener,
    hub: Hub,
    access: Access,
    limits: Arc<Limits>,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let access = Arc::new(access);
    let places = Arc::new(Semaphore::new(limits.max_connections));
    let connections = TaskTracker::new();
    let mut handshakes = Handshakes::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_passing(&error) => {
                tracing::warn!(%error, "a connection was not accepted");
                // Out of descriptors or memory: trying again at once would spin.
                tokio::time::sleep(limits.accept_pause).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let turn = handshakes.begin(limits.max_handshakes);
        let (hub, access, limits) = (hub.clone(), Arc::clone(&access), Arc::clone(&limits));
        let places = Arc::clone(&places);
        connections.spawn(async move {
            let shaken = turn.run_until_cancelled(shake(stream, &hub, &access, &limits, peer));
            let Some(Some(socket)) = shaken.await else {
                return;
            };
            drop(turn);
            // Only who has shown the key takes a place.
            let Ok(_place) = places.try_acquire_owned() else {
                hub.metrics().refused_connections.add(1);
                return tracing::warn!(
                    limit = limits.max_connections,
                    "a connection was refused: the limit is reached"
                );
            };
            serve(socket, &hub, &limits, peer).await;
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

/// Whether an error of `accept` concerns one connection or passes by itself, see accept(2).
fn is_passing(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected
    )
}

/// Handshakes that are under way. Where they are too many the oldest ends, which a silent dialler's is.
#[derive(Default)]
struct Handshakes(VecDeque<(CancellationToken, Weak<()>)>);

/// The turn of one handshake.
struct Turn {
    end: CancellationToken,
    _under_way: Arc<()>,
}

impl Turn {
    async fn run_until_cancelled<F: Future>(&self, handshake: F) -> Option<F::Output> {
        self.end.run_until_cancelled(handshake).await
    }
}

impl Handshakes {
    fn begin(&mut self, most: usize) -> Turn {
        self.0.retain(|(_, under_way)| under_way.strong_count() > 0);
        if self.0.len() >= most
            && let Some((oldest, _)) = self.0.pop_front()
        {
            oldest.cancel();
        }
        let (end, under_way) = (CancellationToken::new(), Arc::new(()));
        self.0.push_back((end.clone(), Arc::downgrade(&under_way)));
        Turn {
            end,
            _under_way: under_way,
        }
    }
}

/// Makes the handshake; nothing where it fails.
async fn shake(
    stream: TcpStream,
    hub: &Hub,
    access: &Access,
    limits: &Arc<Limits>,
    peer: std::net::SocketAddr,
) -> Option<WebSocketStream<Link<SharedSocket>>> {
    // Without it a small frame waits for the peer's delayed acknowledgement: 40 ms and more.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let config = socket_config(limits, limits.max_inbound_bytes);
    let spare = Spare::of(&stream);
    let metrics = Arc::clone(hub.metrics());
    let socket = SharedSocket::new(stream, limits.fragment_bytes, metrics);
    let handshake = accept_hdr_async_with_config(
        Link::new(socket),
        #[expect(clippy::result_large_err, reason = "the library's own callback type")]
        |request: &Request, response: Response| check(request, response, access),
        Some(config),
    );
    match timeout(limits.handshake_timeout, handshake).await {
        Ok(Ok(socket)) => Some(socket),
        Ok(Err(error)) => {
            if !spare.answer(&error, limits.close_timeout).await {
                hub.metrics().refused_connections.add(1);
                tracing::warn!(%peer, %error, "a handshake failed");
            }
            None
        }
        Err(_) => {
            hub.metrics().refused_connections.add(1);
            tracing::warn!(%peer, "a handshake took too long");
            None
        }
    }
}

async fn serve(
    socket: WebSocketStream<Link<SharedSocket>>,
    hub: &Hub,
    limits: &Arc<Limits>,
    peer: std::net::SocketAddr,
) {
    tracing::info!(%peer, "harness connected");
    let connection = hub.attach();
    connection
        .outbox()
        .open_shortcut(socket.get_ref().stream().line());
    match connection::run(socket, connection, limits).await {
        End::Closed(code) => tracing::info!(%peer, ?code, "harness disconnected"),
        End::ClosedHere(close) => {
            tracing::info!(%peer, code = close.code, reason = close.reason, "connection closed");
        }
        End::Dead => tracing::warn!(%peer, "the connection gave no sign of life and was dropped"),
        End::Failed(error) => tracing::warn!(%peer, %error, "the connection failed"),
    }
}

#[expect(clippy::result_large_err, reason = "the library's own callback type")]
fn check(
    request: &Request,
    mut response: Response,
    access: &Access,
) -> Result<Response, ErrorResponse> {
    let headers = request.headers();
    for origin in headers.get_all(header::ORIGIN) {
        if !access
            .allowed_origins
            .iter()
            .any(|allowed| origin.as_bytes() == allowed.as_bytes())
        {
            return Err(refuse(
                StatusCode::FORBIDDEN,
                "this Origin is not allowed to drive the executor",
            ));
        }
    }
    if let Some(key) = &access.key {
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        if !shown
            .and_then(bearer)
            .is_some_and(|shown| crate::secret::equal(shown, key))
        {
            let mut refusal = refuse(
                StatusCode::UNAUTHORIZED,
                "send `Authorization: Bearer <key>` with the executor's key",
            );
            refusal
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Err(refusal);
        }
    }
    let offered: Vec<&str> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    if let Some(version) = PROTOCOL_VERSIONS
        .iter()
        .find(|version| offered.contains(version))
    {
        response.headers_mut().insert(
            header::SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static(version),
        );
    }
    Ok(response)
}

/// Returns the token of a bearer header; the scheme's name is in any case (RFC 9110 section 11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn refuse(status: StatusCode, sentence: &str) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(format!("{sentence}\n")));
    *response.status_mut() = status;
    response
}
