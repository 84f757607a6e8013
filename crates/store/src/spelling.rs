//! The names of the kernel's enums in a database, where the kernel has none itself.

use windlass_kernel::{AfterExecution, EffectClass, Route};

pub(crate) fn route(route: Route) -> &'static str {
    match route {
        Route::InProcess => "in_process",
        Route::External => "external",
        Route::Client => "client",
        Route::Person => "person",
        Route::Child => "child",
    }
}

pub(crate) fn parse_route(text: &str) -> Option<Route> {
    let routes = [Route::InProcess, Route::External, Route::Client, Route::Person, Route::Child];
    routes.into_iter().find(|value| route(*value) == text)
}

pub(crate) fn effect(effect: EffectClass) -> &'static str {
    match effect {
        EffectClass::Read => "read",
        EffectClass::Idempotent => "idempotent",
        EffectClass::Write => "write",
    }
}

pub(crate) fn parse_effect(text: &str) -> Option<EffectClass> {
    [EffectClass::Read, EffectClass::Idempotent, EffectClass::Write].into_iter().find(|value| effect(*value) == text)
}

pub(crate) fn after(after: AfterExecution) -> &'static str {
    match after {
        AfterExecution::Suspend => "suspend",
        AfterExecution::Terminate => "terminate",
    }
}

pub(crate) fn parse_after(text: &str) -> Option<AfterExecution> {
    [AfterExecution::Suspend, AfterExecution::Terminate].into_iter().find(|value| after(*value) == text)
}
