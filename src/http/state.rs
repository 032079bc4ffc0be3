//! What all connections and routes share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

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
    /// When lines above debug were last counted, and how many were written for requests since.
    pub(super) notable: Mutex<(Moment, u32)>,
    /// Lets one large body be parsed at a time: texts with escapes are in memory twice meanwhile.
    pub(super) parsing: Arc<Semaphore>,
}

/// Lines above debug for requests in a second, at most: clients can cause some at will.
const NOTABLE_MAX: u32 = 10;
const NOTABLE_SPAN: Duration = Duration::from_secs(1);

impl AppState {
    /// Whether one more line above debug may be written for a request.
    pub(super) fn is_notable(&self) -> bool {
        let now = self.clock.now();
        let mut notable = self.notable.lock();
        if now.since(notable.0) >= NOTABLE_SPAN {
            *notable = (now, 0);
        }
        notable.1 += 1;
        notable.1 <= NOTABLE_MAX
    }

    /// The state of the application that got the request.
    pub(super) fn of(request: &HttpRequest) -> &Data<Self> {
        request.app_data().expect("`app` gives it to every request")
    }
}
