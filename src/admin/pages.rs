//! What the admin port answers, path by path.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::prometheus;
use super::ready::Readiness;
use crate::dispatch::Hub;
use crate::limits::Limits;

/// The form of the answer to a scrape (Prometheus text format, version 0.0.4).
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the pages about a hub.
pub(super) fn router(hub: Hub, limits: &Arc<Limits>) -> Router {
    let readiness = Arc::new(Readiness::new(hub.clone(), limits));
    let ready = Router::new()
        .route("/readyz", get(readyz))
        .with_state(readiness);
    Router::new()
        .route("/livez", get(livez))
        .route("/metrics", get(metrics))
        .with_state(hub)
        .merge(ready)
        .fallback(elsewhere)
}

/// The process runs and its threads are given time. Nothing else: what only time heals must not have it restarted.
async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(readiness): State<Arc<Readiness>>) -> impl IntoResponse {
    let report = readiness.report().await;
    let status = if report.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = serde_json::to_string(&report).unwrap_or_default() + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], body)
}

async fn metrics(State(hub): State<Hub>) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, EXPOSITION)],
        prometheus::render(&hub),
    )
}

async fn elsewhere() -> impl IntoResponse {
    (
        StatusCode::NOT_FOUND,
        "there is /livez, /readyz and /metrics\n",
    )
}
