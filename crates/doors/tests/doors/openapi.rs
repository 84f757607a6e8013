//! The OpenAPI document describes every route that is served, and no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;

use crate::support::{World, request};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Paths with their methods.
type Routes = BTreeMap<String, BTreeSet<String>>;

fn described(document: &Value) -> Routes {
    let methods = |item: &Value| METHODS.iter().filter(|method| item.get(method).is_some()).map(|method| (*method).to_owned()).collect();
    document["paths"].as_object().unwrap().iter().map(|(path, item)| (path.clone(), methods(item))).collect()
}

/// The text up to the parenthesis that closes the one before it.
fn within_parentheses(text: &str) -> &str {
    let mut open = 1;
    let end = text.find(|letter| {
        open += i32::from(letter == '(') - i32::from(letter == ')');
        open == 0
    });
    &text[..end.expect("what is opened is closed")]
}

/// The routes as they are in the sources, since a router cannot list its routes.
fn spelled(folder: &Path, routes: &mut Routes) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            spelled(&path, routes);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let routed = text.split(".route(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
        for rest in routed {
            let (route, handlers) = rest.split_once('"').expect("a text has an end");
            let handlers = within_parentheses(handlers);
            let methods = METHODS.iter().filter(|method| handlers.contains(&format!("{method}("))).map(|method| (*method).to_owned());
            routes.entry(route.replace("{*", "{")).or_default().extend(methods);
        }
    }
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else_is() {
    let document = World::start().get("/openapi.json").await.expect(200);
    let mut routes = Routes::new();
    spelled(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut routes);
    assert!(routes.len() > 20 && routes.values().all(|methods| !methods.is_empty()), "the sources are read: {routes:?}");
    assert_eq!(described(&document), routes, "what is served (right) is what crates/doors/openapi describes (left)");
}

/// Names that begin like events and are none: a request on a socket, and two objects.
const NO_EVENTS: [&str; 3] = ["response.create", "response.compaction", "response.input_tokens"];

/// The types of events in the sources of the Responses API.
fn sent_events(folder: &Path, events: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sent_events(&path, events);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let named = text.split("\"response.").skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| format!("response.{name}"));
        events.extend(named.filter(|name| !NO_EVENTS.contains(&name.as_str())));
    }
}

#[tokio::test]
async fn every_event_of_a_response_is_described_and_no_other() {
    let document = World::start().get("/openapi.json").await.expect(200);
    let schemas = &document["components"]["schemas"];
    let described = schemas["ResponseEvent"]["oneOf"].as_array().unwrap().iter().flat_map(|reference| {
        let name = reference["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        let kind = &schemas[name]["properties"]["type"];
        let kinds = kind["enum"].as_array().cloned().unwrap_or_else(|| vec![kind["const"].clone()]);
        kinds.into_iter().map(|kind| kind.as_str().unwrap().to_owned())
    });
    let mut sent = BTreeSet::new();
    sent_events(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/responses"), &mut sent);
    assert!(sent.len() > 20, "the sources are read: {sent:?}");
    assert_eq!(described.collect::<BTreeSet<_>>(), sent, "what is described (left) is what is sent (right)");
}

#[tokio::test]
async fn what_is_described_is_served_and_takes_no_other_method() {
    let world = World::start();
    let document = world.get("/openapi.json").await.expect(200);
    for (path, methods) in described(&document) {
        // Names that do not exist.
        let path: String =
            path.split('{').map(|part| part.split_once('}').map_or(part.to_owned(), |(_, rest)| format!("none{rest}"))).collect();
        for method in METHODS {
            let body = axum::body::Body::empty();
            let answer = world.router.clone();
            let response =
                tower::ServiceExt::oneshot(answer, request(&method.to_uppercase(), "all", &path).body(body).unwrap()).await.unwrap();
            let is_refused = response.status() == 405;
            // The route of the WebSocket refuses plain HTTP as a wrong method.
            let is_socket = method == "get" && path == "/v1/responses";
            assert_eq!(is_refused, !methods.contains(method) || is_socket, "{method} {path}: {}", response.status());
        }
    }
}

#[tokio::test]
async fn the_document_is_for_those_with_a_token() {
    let world = World::start();
    let answer = world.send(axum::http::Request::get("/openapi.json").body(axum::body::Body::empty()).unwrap()).await;
    assert_eq!(answer.refusal(), (401, "unauthorized".to_owned()));
    assert_eq!(world.get_as("reader", "/openapi.json").await.expect(200)["openapi"], "3.1.0");
}
