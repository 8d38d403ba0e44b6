//! Connections of the admin port: few, short, and the oldest gives way.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::pages;
use crate::dispatch::Hub;
use crate::limits::Limits;

/// Accepts for ever. A connection gets one request and one answer within its time.
#[expect(clippy::infinite_loop, reason = "it is dropped with the thread's work")]
pub(super) async fn serve(listener: TcpListener, hub: Hub, limits: &Arc<Limits>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let pages = TowerToHyperService::new(pages::router(hub, limits));
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the admin port was not accepted");
                // Out of descriptors or memory: trying again at once would spin.
                tokio::time::sleep(limits.accept_pause).await;
                continue;
            }
        };
        open.retain(|task| !task.is_finished());
        if open.len() >= limits.admin_connections
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let (pages, limits) = (pages.clone(), Arc::clone(limits));
        let task = tokio::spawn(async move {
            match timeout(limits.admin_timeout, answer(stream, pages, &limits)).await {
                Ok(Ok(())) => {}
                // The reason could quote the client.
                Ok(Err(_)) => tracing::debug!("a client of the admin port sent no valid request"),
                Err(_) => tracing::debug!("a client of the admin port was too slow"),
            }
        });
        open.push_back(task.abort_handle());
    }
}

async fn answer(
    stream: TcpStream,
    pages: TowerToHyperService<axum::Router>,
    limits: &Limits,
) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.admin_timeout)
        .keep_alive(false)
        .max_buf_size(limits.admin_head_bytes)
        .serve_connection(TokioIo::new(stream), pages)
        .await
}
