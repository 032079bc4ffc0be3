//! The application as actix knows it: the routes, and the layers around them.
//!
//! Every answer to a request passes the layers, browsers' preflights and refusals too. Outermost
//! first:
//!
//! | layer | what it does |
//! |---|---|
//! | `unread::finish_body` | what is left of the request's body is read, or ends the connection |
//! | `record::observe` | the request's id, its line in the log, metrics, trace |
//! | `close_while_draining` | tells clients to go to a server that stays |
//! | `cors::layer` | answers preflights, where origins are configured |
//! | the router | finds the route; 404 and 405 |
//! | `enter`, around each route | asks for a key; a panic becomes an answer |
//!
//! Actix decodes a path before it looks for the route, all but `%2F`, `%25` and `%2B`.

use std::panic::AssertUnwindSafe;

use actix_http::Request;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, map_config};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{AppConfig, ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{
    App, Error, FromRequest, Handler, HttpRequest, HttpResponse, Resource, Responder, Route, guard,
};
use futures_util::FutureExt;

use super::connection::unread;
use super::error::{ApiError, Code, ErrorForm};
use super::payload::EmbeddingRequest;
use super::record::{self, RequestContext};
use super::{AppState, cors, embed, health, models, nim, openapi, pages, tei, tokenize};
use crate::config::{Dialect, DocsRoutes, HttpConfig};
use crate::health::Phase;
use crate::worker::panic_text;

/// A model's name may have slashes. An escape that is cut short is no name, nor are bytes that are
/// not UTF-8, which actix decodes to the replacement character.
const MODEL: &str = r"/v1/models/{id:(?:[^%\x{FFFD}]|%[[:xdigit:]][[:xdigit:]])+}";

/// What the layers know of a route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    /// As the router compares it.
    path: &'static str,
    /// In the log, in metrics and in traces.
    pub(super) name: &'static str,
    /// A key must be shown, where keys are configured.
    needs_key: bool,
    /// Machines ask it all day, so that it has no trace and no line that an operator should read.
    pub(super) is_polled: bool,
    errors: ErrorForm,
}

impl Endpoint {
    pub(super) const fn keyed(path: &'static str) -> Self {
        Self { needs_key: true, ..Self::open(path) }
    }

    pub(super) const fn open(path: &'static str) -> Self {
        Self { path, name: path, needs_key: false, is_polled: false, errors: ErrorForm::OpenAi }
    }

    pub(super) const fn polled(path: &'static str) -> Self {
        Self { is_polled: true, ..Self::open(path) }
    }

    /// The same with another name than its path.
    pub(super) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The same with errors in another form.
    pub(super) const fn refusing_as(self, errors: ErrorForm) -> Self {
        Self { errors, ..self }
    }
}

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
        .configure(|app| routes(app, &state.config))
        .default_service(web::to(not_found))
        // Each layer goes around those before it.
        .wrap(cors::layer(&state.config.cors_origins))
        .wrap(from_fn(close_while_draining))
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
    app.service(get(Endpoint::open("/"), pages::root));
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
    app.service(post(Endpoint::keyed("/v1/tokenize"), tokenize::tokenize))
        .service(get(Endpoint::keyed("/v1/models"), models::list))
        .service(get(Endpoint::keyed(MODEL).named("/v1/models/{id}"), models::find));
}

pub(super) fn post<H, A>(endpoint: Endpoint, handler: H) -> Resource
where
    H: Handler<A, Output: Responder + 'static>,
    A: FromRequest + 'static,
{
    resource(endpoint, web::post().to(handler), "POST")
}

/// As everywhere, HEAD is GET without the body.
pub(super) fn get<H, A>(endpoint: Endpoint, handler: H) -> Resource
where
    H: Handler<A, Output: Responder + 'static>,
    A: FromRequest + 'static,
{
    let reads = guard::Any(guard::Get()).or(guard::Head());
    resource(endpoint, web::route().guard(reads).to(handler), "GET, HEAD")
}

fn resource(endpoint: Endpoint, route: Route, methods: &'static str) -> Resource {
    #[cfg(test)]
    tests::ROUTES.with_borrow_mut(|routes| routes.push((endpoint.name, methods)));
    web::resource(endpoint.path)
        .route(route.wrap(from_fn(move |request, next| enter(endpoint, request, next))))
        .default_service(web::to(move |request: HttpRequest| {
            wrong_method(request, endpoint, methods)
        }))
}

/// What every path without a route is answered.
async fn not_found() -> HttpResponse {
    let message = "there is no such route; the routes are POST /v1/embeddings, \
                   /v1/sparse-embeddings, /v1/embeddings:both, /v1/tokenize and GET /v1/models, \
                   /health, /health/deep, /health/live, /metrics, each without a slash at its end";
    HttpResponse::from_error(ApiError::new(Code::NotFound, message))
}

async fn wrong_method(
    request: HttpRequest,
    endpoint: Endpoint,
    methods: &'static str,
) -> HttpResponse {
    RequestContext::of(&request).refuse_method(endpoint);
    let message = format!("{} does not take this method; use {methods}", endpoint.name);
    let error = ApiError::new(Code::MethodNotAllowed, message);
    let error = ApiError { allow: Some(methods), ..error };
    HttpResponse::from_error(error.in_form(endpoint.errors))
}

/// The layer around each route.
async fn enter(
    endpoint: Endpoint,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let state = AppState::of(request.request());
    RequestContext::of(request.request()).enter(endpoint, &request, state.traces.as_deref());
    if endpoint.needs_key
        && let Err(error) = state.keys.check(request.headers())
    {
        return Ok(request.error_response(error.in_form(endpoint.errors)));
    }
    let response = answer_panic(request, next).await?;
    if endpoint.errors == ErrorForm::OpenAi {
        return Ok(response);
    }
    let error = response.response().error().and_then(Error::as_error::<ApiError>).cloned();
    Ok(match error {
        Some(error) => response.error_response(error.in_form(endpoint.errors)),
        None => response,
    })
}

/// A panic must not take the connection, and with it the client's request id, away.
async fn answer_panic(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let asked = request.request().clone();
    AssertUnwindSafe(next.call(request)).catch_unwind().await.unwrap_or_else(|panic| {
        let cause = format!("a panic: {}", panic_text(panic.as_ref()));
        let error = ApiError::server(Code::InternalError, cause);
        Ok(ServiceResponse::from_err(error, asked))
    })
}

/// From the moment that health says no, the client's next request goes to a server that stays.
async fn close_while_draining<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let mut response = next.call(request).await?;
    if AppState::of(response.request()).service.phase() >= Phase::LameDuck {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use actix_web::test::{TestRequest, call_service, init_service, read_body};

    use super::*;
    use crate::http::block_on;
    use crate::http::openapi::tests::operations;

    thread_local! {
        /// The name and the methods of each route that was made.
        pub(super) static ROUTES: RefCell<Vec<(&'static str, &'static str)>> =
            const { RefCell::new(Vec::new()) };
    }

    /// Routes that describe the API, another name of one, and those that refuse every request.
    const OTHER_ROUTES: [&str; 8] = [
        "/",
        "/docs",
        "/openapi.json",
        "/playground",
        "/embed_all",
        "/predict",
        "/rerank",
        "/v1/embeddings/both",
    ];

    #[test]
    fn the_routes_are_those_of_the_description() {
        drop(App::new().configure(|app| routes(app, &HttpConfig::default())));
        let made: BTreeSet<_> = ROUTES.take().into_iter().collect();
        let described: BTreeSet<_> = operations().into_keys().collect();
        let others = |name: &str| OTHER_ROUTES.contains(&name);
        let made = made.into_iter().filter(|(name, _)| !others(name));
        let first = |methods: &str| methods.split(',').next().map(str::to_owned);
        let made = made.filter_map(|(name, methods)| Some((name.to_owned(), first(methods)?)));
        assert_eq!(made.collect::<BTreeSet<_>>(), described);
    }

    async fn panics() -> HttpResponse {
        panic!("a secret");
    }

    #[test]
    fn a_panic_is_answered_as_an_error_whose_cause_is_for_the_log_alone() {
        block_on(async {
            let route = web::get().to(panics).wrap(from_fn(answer_panic));
            let app = init_service(App::new().route("/", route)).await;
            let answer = call_service(&app, TestRequest::get().to_request()).await;
            let error = answer.response().error().and_then(Error::as_error::<ApiError>);
            let error = error.expect("it is an error of ours");
            assert_eq!(error.code, Code::InternalError);
            assert_eq!(error.cause.as_deref(), Some("a panic: a secret"));
            let body = read_body(answer).await;
            assert!(!String::from_utf8_lossy(&body).contains("secret"), "{body:?}");
        });
    }
}
