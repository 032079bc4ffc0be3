//! The application as actix knows it: the routes, and the layers around them.
//!
//! Every answer to a request passes the layers, browsers' preflights and refusals too. Outermost
//! first:
//!
//! | layer | what it does |
//! |---|---|
//! | `unread::finish_body` | what is left of the request's body is read, or ends the connection |
//! | `record::observe` | id, log, metrics, trace; closes the connection while the server drains |
//! | `cors::layer` | answers preflights, where origins are configured |
//! | the router | finds the route; 404 and 405 |
//! | `route`, around each route | asks for a key; a panic becomes an answer |
//!
//! Actix decodes a path before it looks for the route, all but `%2F`, `%25` and `%2B`.

use std::sync::Arc;

use actix_http::Request;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, map_config};
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, Error, HttpRequest, HttpResponse};

use super::connection::unread;
use super::endpoint::Endpoint;
use super::error::{ApiError, Code};
use super::payload::EmbeddingRequest;
use super::record;
use super::rerank::{self, RerankRequest};
use super::route::{get, post};
use super::state::AppState;
use super::{cors, embed, health, models, nim, openapi, pages, tei, tokenize};
use crate::service::Vectors;
use settings::{Dialect, DocsRoutes, HttpConfig};

/// A model's name may have slashes. An escape that is cut short is no name, nor are bytes that are
/// not UTF-8, which actix decodes to the replacement character.
const MODEL: &str = r"/v1/models/{id:(?:[^%\x{FFFD}]|%[[:xdigit:]][[:xdigit:]])+}";

/// Characters of a method and a path that a message repeats: they may be of any length.
const MOST_SHOWN: usize = 80;

/// What answers requests, whichever way they came.
pub(super) fn application(
    state: &Data<AppState>,
) -> impl ServiceFactory<
    Request,
    Config = (),
    Response = ServiceResponse<BoxBody>,
    Error = HttpResponse,
    InitError = (),
    Future: 'static,
    Service: Service<Request, Future: 'static>,
> + use<> {
    let app = App::new()
        .app_data(state.clone())
        .app_data(Data::from(Arc::clone(&state.service)))
        .configure(|app| routes(app, &state.config))
        .default_service(web::to(not_found))
        // Each layer goes around those before it.
        .wrap(cors::layer(&state.config.cors_origins))
        .wrap(from_fn(record::observe))
        .wrap(from_fn(unread::finish_body))
        .into_factory()
        .map_err(|error: Error| error.error_response());
    map_config(app, |()| AppConfig::default())
}

/// The router tries them in this order.
fn routes(app: &mut ServiceConfig, config: &HttpConfig) {
    if config.speaks(Dialect::OpenAi) {
        embedding_routes(app);
    }
    if config.speaks(Dialect::Nim) {
        nim::routes(app);
    }
    if config.speaks(Dialect::Tei) {
        tei::routes(app);
    }
    // The POST of the path runs the model, which alerts watch: they must not count this with it.
    let root = Endpoint::open("/").named("/ (index)");
    let root = Endpoint { is_beside_post: config.speaks(Dialect::Tei), ..root };
    app.service(get(root, pages::root));
    let metrics = Endpoint { needs_key: config.metrics_need_key, ..Endpoint::polled("/metrics") };
    app.service(get(Endpoint::polled("/health"), health::report))
        .service(get(Endpoint::polled("/health/live"), health::live))
        .service(get(Endpoint::polled("/health/deep"), health::deep))
        .service(get(metrics, health::metrics));
    if config.docs == DocsRoutes::Serve {
        app.service(get(Endpoint::open("/openapi.json"), openapi::answer)).configure(pages::routes);
    }
}

fn embedding_routes(app: &mut ServiceConfig) {
    for (path, vectors) in embed::EMBEDDING_ROUTES {
        let handler = move |state, request, body| {
            embed::embed::<EmbeddingRequest>(state, request, body, vectors)
        };
        app.service(post(Endpoint::keyed(path), handler));
    }
    for path in rerank::ROUTES {
        let handler = move |state, request, body| {
            embed::embed::<RerankRequest>(state, request, body, Vectors::Both)
        };
        app.service(post(Endpoint::keyed(path), handler));
    }
    app.service(post(Endpoint::keyed("/v1/tokenize"), tokenize::tokenize))
        .service(get(Endpoint::keyed("/v1/models"), models::list))
        .service(get(Endpoint::keyed(MODEL).named("/v1/models/{id}"), models::find));
}

/// What every path without a route is answered. It names no route that the settings leave out.
async fn not_found(state: Data<AppState>, request: HttpRequest) -> HttpResponse {
    let config = &state.config;
    let asked: String =
        format!("{} {}", request.method(), request.path()).chars().take(MOST_SHOWN).collect();
    let openai = match config.speaks(Dialect::OpenAi) {
        true => {
            "POST /v1/embeddings (base_url ends in /v1), /v1/sparse-embeddings, \
             /v1/embeddings:both, /v1/rerank, /v1/tokenize and GET /v1/models, "
        }
        false => "GET ",
    };
    let metrics = if config.metrics { ", /metrics" } else { "" };
    let docs = match config.docs {
        DocsRoutes::Serve => "GET /openapi.json has all",
        DocsRoutes::Omit => "--docs false leaves out /docs, /openapi.json and /playground",
    };
    let all = [Dialect::OpenAi, Dialect::Nim, Dialect::Tei];
    let others = match all.into_iter().all(|dialect| config.speaks(dialect)) {
        true => "",
        false => "; --dialects leaves out those of some clients",
    };
    let message = format!(
        "there is no route {asked}; among the routes are {openai}/health, /health/deep, \
         /health/live{metrics}, each without a slash at its end; {docs}{others}"
    );
    HttpResponse::from_error(ApiError::new(Code::NotFound, message))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::openapi::tests::operations;
    use crate::http::route::tests::MADE;

    /// Routes that describe the API, other names of two, and those that refuse every request.
    const OTHER_ROUTES: [&str; 9] = [
        "/",
        "/ (index)",
        "/docs",
        "/openapi.json",
        "/playground",
        "/embed_all",
        "/predict",
        "/v1/embeddings/both",
        "/v2/rerank",
    ];

    #[test]
    fn the_routes_are_those_of_the_description() {
        drop(App::new().configure(|app| routes(app, &HttpConfig::default())));
        let made: BTreeSet<_> = MADE.take().into_iter().collect();
        let described: BTreeSet<_> = operations().into_keys().collect();
        let others = |name: &str| OTHER_ROUTES.contains(&name);
        let made = made.into_iter().filter(|(name, _)| !others(name));
        let first = |methods: &str| methods.split(',').next().map(str::to_owned);
        let made = made.filter_map(|(name, methods)| Some((name.to_owned(), first(methods)?)));
        assert_eq!(made.collect::<BTreeSet<_>>(), described);
    }
}
