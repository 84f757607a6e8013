//! Boxes: what a turn may read, where it writes, and in which order a worker reads and writes.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, description: gives back, parameters: { type: object, properties: { n: { type: number } } }, effect: read }
    - { name: other, effect: read }
agents:
  a: { tools: [echo], instructions: You are A. }
  b: { tools: [other] }
limits: { sweep_interval: 20ms }
";

async fn server() -> Server {
    ServerBuilder::new(CONFIG).start().await
}

async fn server_with(model: &FakeModel) -> Server {
    ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await
}

/// Plays a turn with one call to its end.
async fn run_with_call(server: &Server, agent: &str, body: Value) -> Value {
    let run = server.enqueue_body(agent, body).await;
    let call = server.claim("echo").await;
    server.report(&call, json!("result")).await.ok();
    server.ended(&run).await
}

fn ids(cards: &[Value]) -> Vec<String> {
    cards.iter().map(|card| card["item_id"].as_str().expect("an id").to_owned()).collect()
}

fn messages(request: &Value) -> Vec<Value> {
    request["messages"].as_array().expect("messages").clone()
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

#[tokio::test]
async fn c_069_a_context_box_never_gains_a_card() {
    let server = server().await;
    let run = server.enqueue_body("a", json!({ "input": ["first", "call echo"] })).await;
    let context = server.suspended("a", &run).await["context_box_id"].clone();
    let before = server.cards(&context).await;
    assert_eq!(before.len(), 2);
    let call = server.claim("echo").await;
    server.report(&call, json!("x")).await.ok();
    server.ended(&run).await;
    assert_eq!(server.cards(&context).await, before);
    // A box that a later turn reads does not change either.
    let given = server.run(&run).await["output_box_id"].clone();
    let before = server.cards(&given).await;
    let later = run_with_call(&server, "a", json!({ "input": "call echo", "context_box_id": given })).await;
    assert_eq!(server.cards(&given).await, before);
    assert_ne!(later["output_box_id"], given);
}

#[tokio::test]
async fn c_070_every_new_card_goes_into_the_output_box() {
    let server = server().await;
    let ended = run_with_call(&server, "a", json!({ "input": "call echo" })).await;
    let output = server.cards(&ended["output_box_id"]).await;
    let kinds: Vec<&Value> = output.iter().map(|card| &card["kind"]).collect();
    assert_eq!(kinds, ["tool.call", "tool.result", "task.deliverable"]);
    let context = server.cards(&ended["context_box_id"]).await;
    let all: BTreeSet<String> = ids(&output).into_iter().chain(ids(&context)).collect();
    assert_eq!(server.number("SELECT count(*) FROM items"), all.len() as i64, "there is no card anywhere else");
}

#[tokio::test]
async fn c_071_the_model_is_sent_the_given_boxes_and_nothing_else() {
    let model = FakeModel::start(vec![Scene::Say("noted")]).await;
    let server = server_with(&model).await;
    let secret = server.enqueue("b", "the secret of b").await;
    server.ended(&secret).await;
    let earlier = server.enqueue("a", "an earlier turn of a").await;
    server.ended(&earlier).await;
    let run = server.enqueue("a", "what do you know?").await;
    server.ended(&run).await;
    let asked = model.asked();
    assert_eq!(messages(&asked[2]), [json!({ "role": "system", "content": "You are A." }), user("what do you know?")]);
}

#[tokio::test]
async fn c_072_what_another_agent_wrote_is_seen_only_through_a_packed_box() {
    let model = FakeModel::start(vec![Scene::Say("the code is 17"), Scene::Say("I know nothing"), Scene::Say("it is 17")]).await;
    let server = server_with(&model).await;
    let first = server.enqueue("a", "think of a code").await;
    let first = server.ended(&first).await;
    let blind = server.enqueue("b", "what is the code?").await;
    server.ended(&blind).await;
    let pack = json!({ "boxes": [first["output_box_id"]], "items": ["the above is what a said"] });
    let packed = server.post("/v1/windlass/boxes", pack).await;
    assert_eq!(packed.status, 201, "{}", packed.body);
    let packed = packed.ok();
    let seeing = server.enqueue_body("b", json!({ "input": "what is the code?", "context_box_id": packed["box_id"] })).await;
    server.ended(&seeing).await;
    let asked = model.asked();
    assert!(!asked[1].to_string().contains("17"), "{}", asked[1]);
    let expected = [user("think of a code"), assistant("the code is 17"), user("the above is what a said"), user("what is the code?")];
    assert_eq!(messages(&asked[2]), expected);
    assert_eq!(packed["length"], 3);
    assert_eq!(server.cards(&packed["box_id"]).await.len(), 3, "the turn wrote nothing into it");
}

#[tokio::test]
async fn c_072_several_boxes_are_packed_in_order_and_share_their_cards() {
    let server = server().await;
    let mut outputs = Vec::new();
    for (agent, input) in [("a", "one"), ("b", "two")] {
        let run = server.enqueue(agent, input).await;
        outputs.push(server.ended(&run).await["output_box_id"].clone());
    }
    let items = server.number("SELECT count(*) FROM items");
    let packed = server.post("/v1/windlass/boxes", json!({ "boxes": [outputs[1], outputs[0]] })).await.ok();
    let contents: Vec<Value> = server.cards(&packed["box_id"]).await.iter().map(|card| card["content"].clone()).collect();
    let expected =
        [json!({ "text": "two" }), json!({ "text": "You said: two" }), json!({ "text": "one" }), json!({ "text": "You said: one" })];
    assert_eq!(contents, expected);
    assert_eq!(server.number("SELECT count(*) FROM items"), items, "nothing was copied");
}

#[tokio::test]
async fn c_073_each_round_reads_the_output_box_back() {
    let calls = |n: i64| Scene::Call(vec![("echo", json!({ "n": n }))]);
    let model = FakeModel::start(vec![calls(1), calls(2), Scene::Say("done")]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    for n in 1..=2 {
        let call = server.claim("echo").await;
        server.report(&call, json!(format!("result {n}"))).await.ok();
    }
    server.ended(&run).await;
    let asked = model.asked();
    let called = |n: i64| {
        json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": "c0", "type": "function", "function": { "name": "echo", "arguments": json!({ "n": n }).to_string() } },
    ] })
    };
    let result = |n: i64| json!({ "role": "tool", "tool_call_id": "c0", "content": format!("result {n}") });
    let begin = [json!({ "role": "system", "content": "You are A." }), user("go")];
    assert_eq!(messages(&asked[0]), begin);
    assert_eq!(messages(&asked[1]), [begin.to_vec(), vec![called(1), result(1)]].concat());
    assert_eq!(messages(&asked[2]), [begin.to_vec(), vec![called(1), result(1), called(2), result(2)]].concat());
}

#[tokio::test]
async fn c_074_box_pointers_change_from_turn_to_turn_and_may_be_replaced_by_anybody() {
    let model = FakeModel::start(vec![Scene::Say("answer")]).await;
    let server = server_with(&model).await;
    let first = server.enqueue("a", "one").await;
    let first = server.ended(&first).await;
    let second = server.enqueue_body("a", json!({ "input": "two", "context_box_id": first["output_box_id"] })).await;
    let second = server.ended(&second).await;
    // A client shortens the history, and the agent continues from there.
    let short = server.post("/v1/windlass/boxes", json!({ "items": ["a summary"] })).await.ok();
    let third = server.enqueue_body("a", json!({ "input": "three", "context_box_id": short["box_id"] })).await;
    let third = server.ended(&third).await;
    let boxes: BTreeSet<String> = [&first, &second, &third]
        .iter()
        .flat_map(|run| [run["context_box_id"].to_string(), run["output_box_id"].to_string()])
        .chain([short["box_id"].to_string()])
        .collect();
    assert_eq!(boxes.len(), 7, "no pointer is used twice");
    let asked = model.asked();
    let system = json!({ "role": "system", "content": "You are A." });
    assert_eq!(messages(&asked[1]), [system.clone(), user("one"), assistant("answer"), user("two")]);
    assert_eq!(messages(&asked[2]), [system, user("a summary"), user("three")]);
}

#[tokio::test]
async fn c_074_a_conversation_of_many_turns_is_read_whole_through_its_chain() {
    let server = server().await;
    let mut last = Value::Null;
    for turn in 0..70 {
        let mut body = json!({ "input": format!("turn {turn}") });
        if !last.is_null() {
            body["context_box_id"] = last;
        }
        let run = server.enqueue_body("b", body).await;
        last = server.ended(&run).await["output_box_id"].clone();
    }
    let packed = server.post("/v1/windlass/boxes", json!({ "boxes": [last] })).await.ok();
    let cards = server.cards(&packed["box_id"]).await;
    assert_eq!(cards.len(), 140);
    for (turn, pair) in cards.chunks(2).enumerate() {
        assert_eq!(pair[0]["content"], json!({ "text": format!("turn {turn}") }));
        assert_eq!(pair[1]["content"], json!({ "text": format!("You said: turn {turn}") }));
    }
}

#[tokio::test]
async fn c_075_concurrent_turns_fork_the_box_they_share() {
    let server = server().await;
    let root = server.enqueue("a", "root").await;
    let shared = server.ended(&root).await["output_box_id"].clone();
    let before = server.cards(&shared).await;
    let body = json!({ "input": "call echo", "context_box_id": shared, "tools": ["echo"] });
    let one = server.enqueue_body("one", body.clone()).await;
    let two = server.enqueue_body("two", body).await;
    let (first, second) = (server.suspended("one", &one).await, server.suspended("two", &two).await);
    assert_ne!(first["output_box_id"], second["output_box_id"]);
    for _ in 0..2 {
        let call = server.claim("echo").await;
        server.report(&call, call["agent_id"].clone()).await.ok();
    }
    for (run, agent) in [(&one, "one"), (&two, "two")] {
        let ended = server.ended(run).await;
        let cards = server.cards(&ended["output_box_id"]).await;
        assert_eq!(cards.len(), 3);
        assert_eq!(cards[1]["content"]["result"], agent, "each has its own results only");
        let deliverable = server.content(&ended["deliverable_item_id"]).await;
        assert_eq!(deliverable["text"], format!("The results are: echo gave {agent}"));
    }
    assert_eq!(server.cards(&shared).await, before);
}

#[tokio::test]
async fn c_076_nothing_is_read_or_asked_before_the_gate_is_passed() {
    let model = FakeModel::start(vec![Scene::Call(vec![("echo", json!({}))]), Scene::Say("done")]).await;
    let server = server_with(&model).await;
    let first = server.enqueue("a", "one").await;
    let second = server.enqueue("a", "two").await;
    let call = server.claim("echo").await;
    server.suspended("a", &first).await;
    assert_eq!(server.kinds(&second).await, ["accepted"], "the second turn has no lease");
    assert_eq!(server.run(&second).await["turn_epoch"], Value::Null);
    assert_eq!(model.asked().len(), 1, "and no model was asked for it");
    server.report(&call, json!(1)).await.ok();
    server.ended(&first).await;
    server.ended(&second).await;
    let journal = server.journal(&second).await;
    let begin: Vec<&Value> = journal.iter().take(3).map(|entry| &entry["event"]["kind"]).collect();
    assert_eq!(begin, ["accepted", "leased", "lap_started"]);
    let (before, after) = (&server.run(&first).await["turn_epoch"], &journal[1]["turn_epoch"]);
    assert!(after.as_u64() > before.as_u64(), "the lease raised the epoch: {before} {after}");
}

#[tokio::test]
async fn c_077_instructions_and_tools_come_from_the_roster_and_stay_as_they_were_pinned() {
    let model = FakeModel::start(vec![Scene::Call(vec![("echo", json!({}))]), Scene::Say("done")]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    let call = server.claim("echo").await;
    let tools = json!([{ "type": "function", "function": {
        "name": "echo", "description": "gives back", "parameters": { "type": "object", "properties": { "n": { "type": "number" } } },
    } }]);
    let asked = model.asked();
    assert_eq!((&asked[0]["tools"], &messages(&asked[0])[0]), (&tools, &json!({ "role": "system", "content": "You are A." })));
    // The operator changes the agents' tools while the turn waits.
    let path = server.folder().join("windlass.yaml");
    let config = std::fs::read_to_string(&path).expect("the configuration");
    std::fs::write(&path, config.replace("You are A.", "You are somebody else.").replace("tools: [echo]", "tools: [other]"))
        .expect("it is changed");
    let server = server.restart(&[]).await;
    server.report(&call, json!(1)).await.ok();
    server.ended(&run).await;
    let asked = model.asked_times(2).await;
    assert_eq!((&asked[1]["tools"], &messages(&asked[1])[0]), (&tools, &json!({ "role": "system", "content": "You are A." })));
    let next = server.enqueue("a", "again").await;
    server.ended(&next).await;
    let asked = model.asked();
    assert_eq!(messages(&asked[2])[0]["content"], "You are somebody else.");
    assert_eq!(asked[2]["tools"][0]["function"]["name"], "other");
}

#[tokio::test]
async fn c_078_the_context_box_is_read_before_the_output_box() {
    let model = FakeModel::start(vec![Scene::Say("old answer"), Scene::Call(vec![("echo", json!({}))]), Scene::Say("done")]).await;
    let server = server_with(&model).await;
    let old = server.enqueue("a", "old question").await;
    let old = server.ended(&old).await;
    let run = server.enqueue_body("a", json!({ "input": ["one", "two"], "context_box_id": old["output_box_id"] })).await;
    let call = server.claim("echo").await;
    server.report(&call, json!("a result")).await.ok();
    server.ended(&run).await;
    let asked = model.asked();
    let contents: Vec<Value> = messages(&asked[2]).iter().map(|message| message["content"].clone()).collect();
    let expected =
        [json!("You are A."), json!("old question"), json!("old answer"), json!("one"), json!("two"), Value::Null, json!("a result")];
    assert_eq!(contents, expected);
}

#[tokio::test]
async fn c_079_when_an_event_is_visible_its_card_and_state_are_written() {
    let server = server().await;
    let mut stream = server.events("a", None).await;
    let run = server.enqueue("a", "call echo").await;
    let executing = |event: &windlass_tests::SseEvent| event.data["phase"] == "executing";
    stream.read_until(executing).await;
    let view = server.run(&run).await;
    let cards = server.cards(&view["output_box_id"]).await;
    assert_eq!(cards.iter().map(|card| &card["kind"]).collect::<Vec<_>>(), ["tool.call"], "the card of the call is stored");
    assert_eq!((&view["phase"], &view["calls"]["open"][0]["tool"]), (&json!("waiting"), &json!("echo")), "and so does the state");
    assert_eq!(server.get("/v1/agents/a").await.ok()["status"], "suspended");
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    let read = stream.read_until(|event| event.event == "evt.agent.a.task").await;
    let task = &read.last().expect("the task event").data;
    let ended = server.run(&run).await;
    assert_eq!((&ended["status"], &ended["deliverable_item_id"]), (&json!("ended"), &task["deliverable_card_id"]));
    let cards = server.cards(&task["output_box_id"]).await;
    assert!(cards.iter().any(|card| card["item_id"] == task["deliverable_card_id"]));
}

#[tokio::test]
async fn c_079_a_kill_between_card_state_and_event_leaves_all_of_them_or_none() {
    for (point, is_written) in [("commit.suspend.before", false), ("commit.suspend.after", true)] {
        let mut server = ServerBuilder::new(CONFIG).env("WINDLASS_CRASH_AT", point).start().await;
        let run = server.enqueue("a", "wait 50, call echo").await;
        server.gone().await;
        assert_eq!(server.number("SELECT count(*) FROM items WHERE kind = 'tool.call'"), i64::from(is_written), "{point}: the card");
        assert_eq!(server.number("SELECT count(*) FROM heads WHERE status = 'suspended'"), i64::from(is_written), "{point}: the state");
        assert_eq!(server.number("SELECT count(*) FROM journal WHERE kind = 'replied'"), i64::from(is_written), "{point}: the event");
        let server = server.restart(&[]).await;
        let call = server.claim("echo").await;
        server.report(&call, json!(1)).await.ok();
        let ended = server.ended(&run).await;
        assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("success"), &json!(2)));
        assert_eq!(server.cards(&ended["output_box_id"]).await.len(), 3, "{point}: nothing is there twice");
        let executing = server.events_until_end("a", &run).await.iter().filter(|event| event.data["phase"] == "executing").count();
        assert_eq!(executing, 1, "{point}: and has one event");
    }
}
