//! A route, as the layers around it know it.

use super::error::ErrorForm;

/// What the layers know of a route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    /// As the router compares it.
    pub(super) path: &'static str,
    /// In the log, in metrics and in traces.
    pub(super) name: &'static str,
    /// A key must be shown, where keys are configured.
    pub(super) needs_key: bool,
    /// Machines ask it all day, so that it has no trace and no line that an operator should read.
    pub(super) is_polled: bool,
    /// The POST of its path is a route of its own.
    pub(super) is_beside_post: bool,
    pub(super) errors: ErrorForm,
}

impl Endpoint {
    pub(super) const fn keyed(path: &'static str) -> Self {
        Self { needs_key: true, ..Self::open(path) }
    }

    pub(super) const fn open(path: &'static str) -> Self {
        Self {
            path,
            name: path,
            needs_key: false,
            is_polled: false,
            is_beside_post: false,
            errors: ErrorForm::OpenAi,
        }
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
