//! The query of a request: known parameters, each at most once.

use axum::{
    extract::{FromRequestParts, Query as Pairs},
    http::request::Parts,
};

use crate::{
    DoorState,
    error::ApiError,
    limits::{PAGE_ROWS, PAGE_ROWS_MAX},
    spelling::{nearest, number, shortened},
};

/// The name and value pairs of a query.
pub(crate) struct Query(Vec<(String, String)>);

impl FromRequestParts<DoorState> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &DoorState) -> Result<Self, ApiError> {
        let pairs = Pairs::try_from_uri(&parts.uri).map_err(|_| ApiError::bad("bad_query", "the query cannot be read"))?;
        Ok(Query(pairs.0))
    }
}

impl Query {
    /// Refuses parameters other than `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        for (index, (name, _)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let hint = nearest(name, known).map(|near| format!("did you mean `{near}`?"));
                return Err(ApiError::bad("unknown_parameter", format!("there is no parameter `{}`", shortened(name))).hint(hint));
            }
            if self.0[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(ApiError::bad("bad_query", format!("the parameter `{name}` is given twice")));
            }
        }
        Ok(())
    }

    /// The value of a parameter.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Whether the list parameter `name` contains `value`. Clients write lists as `name`, `name[]` or `name[0]`.
    pub fn has(&self, name: &str, value: &str) -> bool {
        let is_list = |given: &str| given.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('['));
        self.0.iter().any(|(given, words)| is_list(given) && words == value)
    }

    /// A parameter that is a number, or `default` if it is absent.
    pub fn number(&self, name: &str, default: u64) -> Result<u64, ApiError> {
        let wanted = || ApiError::bad("bad_query", format!("`{name}` must be a whole number"));
        self.text(name).map_or(Ok(default), |text| number(text).ok_or_else(wanted))
    }

    /// The number of rows that the client wants (`limit`).
    pub fn limit(&self) -> Result<usize, ApiError> {
        let wanted = || ApiError::bad("bad_query", format!("`limit` must be a whole number from 1 to {PAGE_ROWS_MAX}"));
        let limit = self.text("limit").map_or(Ok(PAGE_ROWS), |text| text.parse().map_err(|_| wanted()))?;
        (1..=PAGE_ROWS_MAX).contains(&limit).then_some(limit).ok_or_else(wanted)
    }
}
