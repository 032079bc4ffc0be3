//! One route: its methods, its key, and a panic that becomes an answer.

use std::panic::AssertUnwindSafe;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::ACCESS_CONTROL_REQUEST_METHOD;
use actix_web::middleware::{Next, from_fn};
use actix_web::web;
use actix_web::{
    Error, FromRequest, Handler, HttpRequest, HttpResponse, Resource, Responder, Route, guard,
};
use futures_util::FutureExt;

use super::endpoint::Endpoint;
use super::error::{ApiError, Code, ErrorForm};
use super::record::RequestContext;
use super::state::AppState;
use crate::worker::panic_text;

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
    let methods = if endpoint.is_beside_post { "GET, HEAD, POST" } else { "GET, HEAD" };
    resource(endpoint, web::route().guard(reads).to(handler), methods)
}

/// `methods` are those of the path.
fn resource(endpoint: Endpoint, route: Route, methods: &'static str) -> Resource {
    #[cfg(test)]
    tests::MADE.with_borrow_mut(|routes| routes.push((endpoint.name, methods)));
    web::resource(endpoint.path)
        .route(route.wrap(from_fn(move |request, next| enter(endpoint, request, next))))
        .default_service(web::to(move |request: HttpRequest| {
            wrong_method(request, endpoint, methods)
        }))
}

async fn wrong_method(
    request: HttpRequest,
    endpoint: Endpoint,
    methods: &'static str,
) -> HttpResponse {
    RequestContext::of(&request).refuse_method(endpoint);
    // The layer of `cors` answers a browser's question where origins are configured.
    let is_preflight = request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let message = if is_preflight && AppState::of(&request).config.cors_origins.is_empty() {
        "pages of other origins are not allowed; the operator allows them with --cors-origin".into()
    } else {
        format!("{} does not take this method; use {methods}", endpoint.name)
    };
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

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    use actix_web::App;
    use actix_web::test::{TestRequest, call_service, init_service, read_body};

    use super::*;
    use crate::http::block_on;

    thread_local! {
        /// The name and the methods of each route that was made.
        pub(in crate::http) static MADE: RefCell<Vec<(&'static str, &'static str)>> =
            const { RefCell::new(Vec::new()) };
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
