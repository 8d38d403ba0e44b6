//! Dialling: address, TLS, credentials, subprotocol. Used by both ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::{ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::http::{HeaderValue, Request, Uri, header};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::either::Either;

use super::link::{Link, socket_config};
use crate::limits::Limits;

/// A dialled byte stream, plain or inside TLS.
pub type Dialled = Link<Either<TcpStream, TlsStream<TcpStream>>>;

/// Where to dial, and how to get in.
#[derive(Clone)]
pub struct Target {
    url: Uri,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    key: Option<String>,
    environment_id: Option<String>,
    allow_plaintext: bool,
}

impl std::fmt::Debug for Target {
    /// Leaves out the key, and what a URL may carry of one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("address", &self.shown())
            .finish_non_exhaustive()
    }
}

/// Why a URL or the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The URL has another form.
    #[error("the URL must be of the form ws://HOST:PORT/PATH or wss://HOST:PORT/PATH")]
    Url,
    /// A value cannot stand in a header.
    #[error("{0} holds characters that an HTTP header cannot carry")]
    Header(&'static str),
    /// There is nobody to trust.
    #[error(
        "no certificate authority is known to this machine; name a file of certificates with --ca-file"
    )]
    NoRoots,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] tokio_rustls::rustls::Error),
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("the name cannot be resolved")]
    Resolve(#[source] io::Error),
    /// Nobody listens, or not in time.
    #[error("nobody answers there")]
    Connect(#[source] io::Error),
    /// The address is not loopback, and there is no TLS.
    #[error(
        "ws:// to an address other than loopback would show the key to the network; use wss://, or --allow-plaintext where the network is trusted"
    )]
    Plaintext,
    /// TLS could not be established.
    #[error("TLS could not be established")]
    Tls(#[source] io::Error),
    /// The other side refused.
    #[error("refused with HTTP status {status}: {reason}")]
    Refused {
        /// The status.
        status: u16,
        /// What its body says.
        reason: String,
    },
    /// The handshake failed otherwise.
    #[error("the WebSocket handshake failed")]
    Handshake(#[source] Box<SocketError>),
    /// It took too long.
    #[error("the handshake took too long")]
    Timeout,
}

impl Target {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`TargetError`] says what cannot be used.
    pub fn new(
        url: &str,
        key: Option<String>,
        environment_id: Option<String>,
    ) -> Result<Self, TargetError> {
        let url: Uri = url.parse().map_err(|_invalid| TargetError::Url)?;
        let host = url.host().ok_or(TargetError::Url)?.to_owned();
        let (tls, default_port) = match url.scheme_str() {
            Some("ws") => (false, 80),
            Some("wss") => (true, 443),
            _ => return Err(TargetError::Url),
        };
        for (what, value) in [("the key", &key), ("the environment id", &environment_id)] {
            if value
                .as_ref()
                .is_some_and(|value| HeaderValue::try_from(value).is_err())
            {
                return Err(TargetError::Header(what));
            }
        }
        let port = url.port_u16().unwrap_or(default_port);
        let tls = tls.then(|| connector(&[])).transpose()?;
        Ok(Self {
            url,
            host,
            port,
            tls,
            key,
            environment_id,
            allow_plaintext: false,
        })
    }

    /// Trusts further certificates, in PEM.
    ///
    /// # Errors
    /// [`TargetError`] where none is usable.
    pub fn trusting(mut self, pem: &[u8]) -> Result<Self, TargetError> {
        if self.tls.is_some() {
            self.tls = Some(connector(pem)?);
        }
        Ok(self)
    }

    /// Lets an address other than loopback be dialled without TLS.
    #[must_use]
    pub fn allowing_plaintext(self, allow: bool) -> Self {
        Self {
            allow_plaintext: allow,
            ..self
        }
    }

    /// Refuses at once what no dial would be allowed to do: a plain address that is not loopback.
    ///
    /// # Errors
    /// [`DialError::Plaintext`].
    pub fn check(&self) -> Result<(), DialError> {
        let address: Option<IpAddr> = self.bare_host().parse().ok();
        let exposed = self.tls.is_none() && !self.allow_plaintext;
        if exposed && address.is_some_and(|address| !address.is_loopback()) {
            return Err(DialError::Plaintext);
        }
        Ok(())
    }

    /// Returns the host without the brackets of an IPv6 address.
    fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns scheme, host and port; what else a URL holds may be secret.
    pub fn shown(&self) -> String {
        format!(
            "{}://{}:{}",
            if self.tls.is_some() { "wss" } else { "ws" },
            self.host,
            self.port
        )
    }

    /// Connects, taking messages of at most `max_message` bytes.
    ///
    /// # Errors
    /// [`DialError`] says what failed.
    pub async fn dial(
        &self,
        limits: &Limits,
        max_message: usize,
    ) -> Result<WebSocketStream<Dialled>, DialError> {
        let made = async {
            match self.attempt(limits, max_message, true).await {
                // A peer that selects none of the protocols is accepted, but only the library's client can say so.
                Err(DialError::Handshake(error)) if selects_none(&error) => {
                    self.attempt(limits, max_message, false).await
                }
                made => made,
            }
        };
        timeout(limits.handshake_timeout, made)
            .await
            .unwrap_or(Err(DialError::Timeout))
    }

    async fn attempt(
        &self,
        limits: &Limits,
        max_message: usize,
        offer: bool,
    ) -> Result<WebSocketStream<Dialled>, DialError> {
        let stream = self.open().await?;
        let request = self
            .request(offer)
            .map_err(|error| DialError::Handshake(Box::new(error)))?;
        let config = socket_config(limits, max_message);
        match client_async_with_config(request, Link::new(stream), Some(config)).await {
            Ok((socket, _response)) => Ok(socket),
            Err(SocketError::Http(response)) => Err(DialError::Refused {
                status: response.status().as_u16(),
                reason: response
                    .into_body()
                    .map(|body| String::from_utf8_lossy(&body).trim().to_owned())
                    .unwrap_or_default(),
            }),
            Err(error) => Err(DialError::Handshake(Box::new(error))),
        }
    }

    async fn open(&self) -> Result<Either<TcpStream, TlsStream<TcpStream>>, DialError> {
        let host = self.bare_host();
        let addresses: Vec<SocketAddr> = lookup_host((host, self.port))
            .await
            .map_err(DialError::Resolve)?
            .collect();
        if self.tls.is_none()
            && !self.allow_plaintext
            && addresses.iter().any(|address| !address.ip().is_loopback())
        {
            return Err(DialError::Plaintext);
        }
        let stream = TcpStream::connect(&*addresses)
            .await
            .map_err(DialError::Connect)?;
        // Without it a small frame waits for the peer's delayed acknowledgement: 40 ms and more.
        stream.set_nodelay(true).map_err(DialError::Connect)?;
        let Some(connector) = &self.tls else {
            return Ok(Either::Left(stream));
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| DialError::Tls(io::Error::other(error)))?;
        connector
            .connect(name, stream)
            .await
            .map(Either::Right)
            .map_err(DialError::Tls)
    }

    fn request(&self, offer: bool) -> Result<Request<()>, SocketError> {
        let mut request = self.url.clone().into_client_request()?;
        let headers = request.headers_mut();
        if offer {
            let offered = crate::wire::PROTOCOL_VERSIONS.join(", ");
            headers.insert(
                header::SEC_WEBSOCKET_PROTOCOL,
                HeaderValue::try_from(offered)?,
            );
        }
        if let Some(key) = &self.key {
            let mut value = HeaderValue::try_from(format!("Bearer {key}"))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        if let Some(id) = &self.environment_id {
            headers.insert("x-bma-environment-id", HeaderValue::try_from(id)?);
        }
        Ok(request)
    }
}

fn selects_none(error: &SocketError) -> bool {
    matches!(
        error,
        SocketError::Protocol(ProtocolError::SecWebSocketSubProtocolError(
            SubProtocolError::NoSubProtocol
        ))
    )
}

/// Makes a TLS client that trusts what the machine trusts, and the certificates in `pem`.
fn connector(pem: &[u8]) -> Result<TlsConnector, TargetError> {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;

    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    if roots.is_empty() {
        return Err(TargetError::NoRoots);
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TargetError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
