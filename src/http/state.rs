//! What all connections and routes share.

use std::sync::{Arc, OnceLock};

use actix_web::HttpRequest;
use actix_web::web::{Bytes, Data};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::auth::Keys;
use super::connection::streams::AllStreams;
use crate::service::EmbeddingService;
use crate::traces::Traces;
use clock::{Clock, Moment};
use settings::HttpConfig;

/// What every connection shares.
pub(super) struct AppState {
    pub(super) service: Arc<EmbeddingService>,
    pub(super) config: HttpConfig,
    pub(super) keys: Arc<Keys>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) traces: Option<Arc<Traces>>,
    /// `/openapi.json` without the model's card, and with it.
    pub(super) descriptions: [OnceLock<Bytes>; 2],
    pub(super) all_streams: AllStreams,
    /// The text of `/metrics` that all get while too many are unread, and when it was made.
    pub(super) crowded_metrics: Mutex<Option<(Moment, Bytes)>>,
    /// Lets one large body be parsed at a time: texts with escapes are in memory twice meanwhile.
    pub(super) parsing: Arc<Semaphore>,
}

impl AppState {
    /// The state of the application that got the request.
    pub(super) fn of(request: &HttpRequest) -> &Data<Self> {
        request.app_data().expect("`app` gives it to every request")
    }
}
