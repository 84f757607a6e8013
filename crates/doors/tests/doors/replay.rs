//! Isolation of tenants: every operation of the OpenAPI document is requested with the ids of another tenant. The answer must be that for
//! an unknown id, and nothing may change.
//!
//! The operations come from the document. An operation that takes ids in its body and is not in [`bodies`] fails the test, so that a new
//! route cannot be forgotten.

use std::{collections::BTreeMap, time::Duration};

use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{World, request};

const OWNER: &str = "all";
const FOREIGNER: &str = "other";
/// A word in the owner's content that the other tenant must never read.
const MARKER: &str = "zebra-crossing";

/// The owner's ids, by kind.
type Ids = BTreeMap<&'static str, String>;

/// One request of the replay, with placeholders such as `{run}` where ids belong.
#[derive(Clone)]
struct Operation {
    name: String,
    method: String,
    path: String,
    body: Option<Value>,
}

impl Operation {
    fn has_ids(&self) -> bool {
        let text = format!("{}{}", self.path, self.body.as_ref().unwrap_or(&Value::Null));
        KINDS.iter().any(|kind| text.contains(&placeholder(kind)))
    }
}

const KINDS: [&str; 9] = ["run", "waiting", "call", "response", "output_item", "conversation", "entry", "box", "interrupt"];

fn placeholder(kind: &str) -> String {
    format!("{{{kind}}}")
}

/// The bodies to send to an operation: one for each place that an id can have. `None` if the operation is not known here.
fn bodies(operation: &str) -> Option<Vec<Value>> {
    let calls = json!([{ "agent_turn_id": "{waiting}", "tool_call_id": "{call}" }]);
    let create = || {
        vec![
            json!({ "input": "on", "previous_response_id": "{response}" }),
            json!({ "input": "on", "conversation": "{conversation}" }),
            json!({ "input": [{ "type": "item_reference", "id": "{output_item}" }] }),
        ]
    };
    Some(match operation {
        "enqueue" => vec![json!({ "input": "on", "context_box_id": "{box}" })],
        "report" => vec![json!({ "agent_turn_id": "{waiting}", "tool_call_id": "{call}", "status": "success", "result": 1 })],
        "stop" => vec![json!({ "agent_turn_id": "{waiting}", "reason": "replayed" })],
        "steer" => vec![json!({ "agent_turn_id": "{waiting}", "input": "replayed" })],
        "act" => vec![json!({ "action_id": "replayed", "tool": "echo", "args": {} })],
        "claim" => vec![json!({ "worker": "w" })],
        "renew" => vec![json!({ "worker": "w", "lease_s": 5, "calls": calls })],
        "release" => vec![json!({ "worker": "w", "calls": calls })],
        "createConversation" => vec![json!({ "items": [] })],
        "updateConversation" => vec![json!({ "metadata": { "by": "replay" } })],
        "addConversationItems" => vec![json!({ "items": [{ "type": "message", "role": "user", "content": "replayed" }] })],
        "createResponse" | "countInputTokens" => create(),
        "compact" => vec![json!({ "model": "offline", "previous_response_id": "{response}" })],
        "pack" => vec![json!({ "boxes": ["{box}"] })],
        "answerInterrupt" => vec![json!({ "action": "end" }), json!({ "action": "resume" })],
        "reconcile" => vec![
            json!({ "run_id": "{run}", "action": "resume" }),
            json!({ "run_id": "{waiting}", "tool_call_id": "{call}", "action": "release" }),
        ],
        // Without `retention` nothing is erased, and the cursor is a position: it names no run.
        "eraseAgedRuns" => vec![json!({})],
        // A token names its own tenant; this one is the owner's.
        "eraseTenant" => vec![json!({ "tenant": "t" })],
        _ => return None,
    })
}

/// The path with each parameter replaced by the kind of its id. Agents, tools and models have the same names for both tenants.
fn with_kinds(path: &str) -> String {
    let id = if path.starts_with("/v1/conversations") { "{conversation}" } else { "{response}" };
    let item = if path.starts_with("/v1/conversations") { "{entry}" } else { "{item}" };
    let named = path.replace("{agent}", "alice").replace("{tool}", "echo").replace("{name}", "offline");
    named.replace("{id}", id).replace("{item}", item)
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "patch", "delete"] {
            let Some(operation) = item.get(method) else { continue };
            let name = operation["operationId"].as_str().unwrap().to_owned();
            let path = with_kinds(path);
            let one = |body| Operation { name: name.clone(), method: method.to_uppercase(), path: path.clone(), body };
            match operation.get("requestBody") {
                None => found.push(one(None)),
                Some(_) => {
                    let known = bodies(&name).unwrap_or_else(|| panic!("say in `bodies` which ids the operation {name} takes"));
                    found.extend(known.into_iter().map(|body| one(Some(body))));
                }
            }
        }
    }
    found
}

/// Replaces the placeholders of kinds by ids.
fn filled(text: &str, ids: &Ids) -> String {
    let text = ids.iter().fold(text.to_owned(), |text, (kind, id)| text.replace(&placeholder(kind), id));
    assert!(!text.contains("{run}") && !text.contains("{item}") && !text.contains("{id}"), "no id for {text}");
    text
}

async fn ask(world: &World, token: &str, operation: &Operation, ids: &Ids) -> (u16, String) {
    let path = filled(&operation.path, ids);
    let body = operation.body.as_ref().map_or_else(Body::empty, |body| filled(&body.to_string(), ids).into());
    let response = world.router.clone().oneshot(request(&operation.method, token, &path).body(body).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    // A stream of events does not end, so the events of a short time are enough.
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_secs(2), body.frame()).await {
        bytes.extend_from_slice(frame.data_ref().map(|data| &data[..]).unwrap_or_default());
        if operation.name == "events" {
            break;
        }
    }
    (status, String::from_utf8(bytes).unwrap())
}

/// An unknown id of the same shape. A call's id contains its run's, so the two agree.
fn unknown(kind: &str, id: &str) -> String {
    let place = KINDS.iter().position(|known| *known == kind.replace("call", "waiting")).unwrap_or(KINDS.len());
    let nobodys = format!("0192d8f0a1b27c3d8e4f5a6b7c8d9e{place:02x}");
    let Some(start) = id.find(|c: char| c.is_ascii_digit()) else { panic!("{id} is no id") };
    let start = id[..start].rfind('_').map_or(start, |at| at + 1);
    format!("{}{nobodys}{}", &id[..start], &id[start + nobodys.len()..])
}

/// The answer without the ids of its request, and without values that differ between any two answers.
fn normalised(answer: &(u16, String), ids: &Ids) -> (u16, String) {
    let text = ids.iter().fold(answer.1.clone(), |text, (kind, id)| text.replace(id, &placeholder(kind)));
    (answer.0, text)
}

async fn owned(world: &World) -> Ids {
    let made = world.post("/v1/responses", json!({ "input": MARKER }).to_string()).await.expect(200);
    let talk = json!({ "items": [{ "type": "message", "role": "user", "content": MARKER }] });
    let conversation = world.post("/v1/conversations", talk.to_string()).await.expect(200)["id"].as_str().unwrap().to_owned();
    let entries = world.get(&format!("/v1/conversations/{conversation}/items")).await.expect(200);
    let run = world.enqueue("alice", MARKER).await;
    let ended = world.ended("alice", &run).await;
    let waiting = world.enqueue("alice", "call echo").await;
    world.until_status("alice", "suspended").await;
    let calls = world.get(&format!("/v1/windlass/runs/{waiting}/calls")).await.expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    BTreeMap::from([
        ("response", text(&made["id"])),
        ("output_item", text(&made["output"][0]["id"])),
        ("conversation", conversation),
        ("entry", text(&entries["data"][0]["id"])),
        ("run", run),
        ("item", text(&ended["deliverable_item_id"])),
        ("box", text(&ended["output_box_id"])),
        ("call", text(&calls["calls"][0]["tool_call_id"])),
        ("waiting", waiting),
        ("interrupt", text(&world.held("wire", "{}").await["interrupt_id"])),
    ])
}

/// Everything that the owner can read. Each path must succeed, which proves that the ids are real.
async fn snapshot(world: &World, operations: &[Operation], ids: &Ids) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    for operation in operations.iter().filter(|operation| operation.method == "GET") {
        let (status, text) = ask(world, OWNER, operation, ids).await;
        // The WebSocket of the Responses API is not served over plain HTTP.
        assert_eq!(status, if operation.name == "openSocket" { 405 } else { 200 }, "{}: {text}", operation.name);
        if !["events", "metrics"].contains(&operation.name.as_str()) {
            seen.push((operation.name.clone(), text));
        }
    }
    seen
}

#[tokio::test]
async fn tm_25_another_tenants_ids_look_unknown_on_every_route_and_change_nothing() {
    let world = World::start();
    let document = world.get("/openapi.json").await.expect(200);
    let mut operations = operations(&document);
    let ids = owned(&world).await;
    let nobodys: Ids = ids.iter().map(|(kind, id)| (*kind, unknown(kind, id))).collect();
    let before = snapshot(&world, &operations, &ids).await;
    let mut unknown_answers = BTreeMap::new();
    for (index, operation) in operations.iter().enumerate() {
        let foreign = ask(&world, FOREIGNER, operation, &ids).await;
        let unknown = ask(&world, FOREIGNER, operation, &nobodys).await;
        let (foreign, unknown) = (normalised(&foreign, &ids), normalised(&unknown, &nobodys));
        assert!(!foreign.1.contains(MARKER), "{} shows the owner's content: {}", operation.name, foreign.1);
        assert!(foreign.0 < 500, "{}: {foreign:?}", operation.name);
        if operation.has_ids() {
            assert_eq!(foreign, unknown, "{} {} {:?}", operation.name, operation.path, operation.body);
            assert!(foreign.0 != 405 && foreign.0 != 403, "{}: {foreign:?}", operation.name);
        }
        unknown_answers.insert(index, unknown);
    }
    assert_eq!(snapshot(&world, &operations, &ids).await, before, "the foreigner changed something of the owner's");

    // The same requests are valid for the owner, who gets other answers. A call is claimed before it is released and reported, and
    // deletions come last, the innermost first.
    const FIRST: [&str; 6] = ["claim", "renew", "release", "steer", "report", "stop"];
    let rank = |operation: &Operation| FIRST.iter().position(|name| *name == operation.name).unwrap_or(FIRST.len());
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|index| {
        let operation = &operations[*index];
        (operation.name == "eraseTenant", operation.method == "DELETE", rank(operation), std::cmp::Reverse(operation.path.len()))
    });
    for index in order {
        let operation = operations[index].clone();
        let own = normalised(&ask(&world, OWNER, &operation, &ids).await, &ids);
        if operation.has_ids() {
            assert_ne!(own, unknown_answers[&index], "{} {} {:?}", operation.name, operation.path, operation.body);
        }
    }
    operations.retain(Operation::has_ids);
    assert!(operations.len() > 25, "most operations take ids: {}", operations.len());
}

#[tokio::test]
async fn tm_25_an_idempotency_key_is_its_tenants_own() {
    let world = World::start();
    for (path, body, id) in [
        ("/v1/responses", json!({ "input": MARKER }), "id"),
        ("/v1/agents/alice/enqueue", json!({ "input": MARKER }), "run_id"),
        ("/v1/windlass/boxes", json!({ "items": [MARKER] }), "box_id"),
        ("/v1/agents/bob/actions", json!({ "action_id": "a1", "tool": "echo" }), "run_id"),
    ] {
        let send = async |token: &str| {
            let built = request("POST", token, path).header("idempotency-key", "k1").body(body.to_string().into()).unwrap();
            world.send(built).await.json()[id].clone()
        };
        let (own, foreign) = (send(OWNER).await, send(FOREIGNER).await);
        assert!(own.is_string() && foreign.is_string(), "{path}: {own} {foreign}");
        assert_ne!(own, foreign, "{path}");
        assert_eq!(send(OWNER).await, own, "{path}");
    }
}
