//! The states of a head, what each of them means, and which events they produce.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass_tests::{McpServer, Scene, ServerBuilder, hex, until};

use crate::support::{claim_all, crowded, edges_taken, head, moves, serve, server_with_model, spy, states, stop, turn_server};

#[tokio::test]
async fn c_010_the_store_refuses_a_status_that_is_none() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo").await;
    server.suspended("ada", &run).await;
    let database = server.database();
    for status in ["'paused'", "'RUNNING'", "'done'", "''", "'0'", "NULL"] {
        for table in ["heads", "runs", "inbox", "calls"] {
            let refused = database.attempt(&format!("UPDATE {table} SET status = {status} WHERE agent = 'ada'"));
            assert!(refused.is_err_and(|error| error.contains("constraint")), "{table} took {status}");
        }
    }
    for status in ["dispatched", "running", "suspended"] {
        let taken = database.attempt(&format!("UPDATE heads SET status = '{status}' WHERE agent = 'ada'"));
        assert_eq!(taken, Ok(1), "{status} is one of the four");
    }
    assert_eq!(head(&server, "ada").await["status"], "suspended");
}

#[tokio::test]
async fn c_011_heads_take_only_the_edges_of_the_state_machine() {
    let (server, model, holder) = crowded(vec![
        Scene::Call(vec![("echo", json!({})), ("send", json!({}))]),
        Scene::Say("done"),
        Scene::Call(vec![("echo", json!({}))]),
        Scene::Hang,
    ])
    .await;
    spy(&server);
    let first = server.enqueue("ada", "two tools").await;
    let second = server.enqueue("ada", "one tool, then stopped").await;
    let third = server.enqueue("ada", "stopped while it waits").await;
    server.agent_is("ada", "dispatched").await;
    stop(&server, "holder", &holder).await;
    serve(&server, "echo", 1).await;
    serve(&server, "send", 1).await;
    server.ended(&first).await;
    serve(&server, "echo", 1).await;
    until("the stopped one thinks", || async { (model.hanging() == 1).then_some(()) }).await;
    stop(&server, "ada", &third).await;
    stop(&server, "ada", &second).await;
    server.agent_is("ada", "idle").await;
    let taken = edges_taken(&server, "ada");
    let taken: Vec<(&str, &str)> = taken.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    // The end of a turn and the next one's lease are one commit, so the agent is never idle while work waits.
    let wanted = [
        ("idle", "dispatched"),
        ("dispatched", "running"),
        ("running", "suspended"),
        ("suspended", "running"),
        ("running", "dispatched"),
        ("dispatched", "running"),
        ("running", "suspended"),
        ("suspended", "running"),
        ("running", "idle"),
    ];
    assert_eq!(taken, wanted);
}

#[tokio::test]
async fn c_011_under_load_no_other_edge_is_ever_taken() {
    let server = turn_server().await;
    spy(&server);
    let kinds = ["hello", "call echo", "call echo call send", "call last", "call brief"];
    let inputs: Vec<String> = (0..50).map(|number| kinds[number % kinds.len()].to_owned()).collect();
    let enqueued = join_all(inputs.iter().map(|input| server.enqueue("ada", input))).await;
    let service = async {
        loop {
            for tool in ["echo", "send", "last"] {
                let claim = server.post(&format!("/v1/tools/{tool}/claim"), json!({ "worker": "w", "max": 10 })).await.ok();
                join_all(claim["calls"].as_array().expect("calls").iter().map(|call| server.report(call, json!(1)))).await;
            }
        }
    };
    let stops = join_all(enqueued.iter().step_by(7).map(|run| stop(&server, "ada", run)));
    let all_end = async {
        stops.await;
        server.all_ended(&enqueued).await;
    };
    tokio::select! { () = service => {}, () = all_end => {} }
    let action = server.post("/v1/agents/ada/actions", json!({ "action_id": "click", "tool": "echo" })).await.ok();
    serve(&server, "echo", 1).await;
    server.ended(action["run_id"].as_str().expect("a run")).await;
    let within = [("dispatched", "running"), ("running", "suspended"), ("suspended", "running")];
    // If a worker is free, the lease and the first step after it are one commit. A turn begins with the model, an action with its call, for
    // which it waits.
    let begins = |kind: &str, to: &str| match kind {
        "turn" => ["dispatched", "running"].contains(&to),
        "ui_action" => ["dispatched", "suspended"].contains(&to),
        other => panic!("{other} begins no turn"),
    };
    let kind = |run: &Option<String>| match run {
        Some(run) if action["run_id"].as_str().map(hex) == Some(run.as_str()) => "ui_action",
        Some(_) => "turn",
        None => panic!("what is not idle has a turn"),
    };
    let mut begun = BTreeSet::new();
    for seen in moves(&server, "ada") {
        let is_legal = match (seen.is_same_run(), seen.edge()) {
            (true, (from, to)) => from == to || within.contains(&(from, to)),
            (false, ("idle", to)) => {
                begun.insert((kind(&seen.new_run), to.to_owned()));
                begins(kind(&seen.new_run), to)
            }
            (false, (_, to)) => to == "idle" || to == "dispatched",
        };
        assert!(is_legal, "{seen:?}");
        // Another turn means another lease, and every lease has a new epoch.
        let is_lease = !seen.is_same_run() && seen.new_run.is_some();
        assert!(if is_lease { seen.new_epoch > seen.old_epoch } else { seen.new_epoch >= seen.old_epoch }, "{seen:?}");
    }
    assert!(begun.contains(&("turn", "running".to_owned())) && begun.contains(&("ui_action", "suspended".to_owned())), "{begun:?}");
}

#[tokio::test]
async fn c_012_idle_means_no_active_turn() {
    let server = turn_server().await;
    assert_eq!(head(&server, "ada").await["active_agent_turn_id"], Value::Null, "before its first turn");
    let run = server.enqueue("ada", "call echo").await;
    server.suspended("ada", &run).await;
    let refuses = |sql: &str| server.database().attempt(sql).is_err_and(|error| error.to_lowercase().contains("check"));
    assert!(refuses("UPDATE heads SET status = 'idle' WHERE agent = 'ada'"), "idle with a turn");
    assert!(refuses("UPDATE heads SET run = NULL WHERE agent = 'ada'"), "suspended without one");
    serve(&server, "echo", 1).await;
    server.ended(&run).await;
    let idle = head(&server, "ada").await;
    assert_eq!((&idle["status"], &idle["active_agent_turn_id"]), (&json!("idle"), &Value::Null));
    assert!(refuses("UPDATE heads SET run = unhex('00') WHERE agent = 'ada'"), "idle with a turn");
}

#[tokio::test]
async fn c_013_dispatched_means_leased_and_not_entered() {
    let (server, model, holder) = crowded(vec![Scene::Say("done")]).await;
    let answer = server.post("/v1/agents/ada/enqueue", json!({ "input": "hello" })).await.ok();
    let run = answer["run_id"].as_str().expect("a run");
    let leased = head(&server, "ada").await;
    assert_eq!((&leased["status"], &leased["active_agent_turn_id"]), (&json!("dispatched"), &json!(run)));
    assert_eq!((&answer["status"], &answer["turn_epoch"]), (&json!("dispatched"), &leased["turn_epoch"]));
    assert!(leased["turn_epoch"].as_u64() > Some(0));
    assert_eq!(server.kinds(run).await, ["accepted"], "no worker has entered");
    assert_eq!(model.asked().len(), 1, "only the holder's model call was made");
    stop(&server, "holder", &holder).await;
    server.ended(run).await;
}

#[tokio::test]
async fn c_014_running_covers_reasoning_and_the_dispatch_of_tools() {
    let (server, model) = server_with_model(vec![Scene::Call(vec![("echo", json!({})), ("send", json!({}))]), Scene::Hang], "").await;
    spy(&server);
    let run = server.enqueue("ada", "go").await;
    server.suspended("ada", &run).await;
    let seen = moves(&server, "ada");
    let seen: Vec<(&str, i64)> = seen.iter().map(|seen| (seen.to.as_str(), seen.waiting)).collect();
    // The state is running from the start until both calls are stored and can be claimed.
    assert_eq!(seen, [("running", 0), ("suspended", 2)]);
    serve(&server, "echo", 1).await;
    serve(&server, "send", 1).await;
    until("the model reasons again", || async { (model.hanging() == 1).then_some(()) }).await;
    assert_eq!(head(&server, "ada").await["status"], "running");
}

#[tokio::test]
async fn c_015_the_waiting_count_agrees_with_the_waiting_set() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo call echo call echo call send").await;
    let calls = claim_all(&server, "echo", 3).await;
    let awaited = |calls: Vec<Value>| {
        calls.iter().filter(|call| ["waiting", "claimed"].contains(&call["status"].as_str().expect("a status"))).count()
    };
    for (reported, call) in calls.iter().enumerate() {
        let waits = head(&server, "ada").await;
        assert_eq!((&waits["status"], &waits["waiting_tool_count"]), (&json!("suspended"), &json!(4 - reported)));
        assert_eq!(awaited(server.calls(&run).await), 4 - reported);
        server.report(call, json!("done")).await.ok();
    }
    serve(&server, "send", 1).await;
    server.ended(&run).await;
    assert_eq!(head(&server, "ada").await["waiting_tool_count"], 0);
    assert_eq!(awaited(server.calls(&run).await), 0);
}

#[tokio::test]
async fn c_015_count_and_set_agree_at_every_moment_of_a_busy_server() {
    let server = turn_server().await;
    let agents: Vec<String> = (0..30).map(|number| format!("agent-{number}")).collect();
    let body = json!({ "input": "call echo call echo call echo call echo", "tools": ["echo"] });
    let runs = join_all(agents.iter().map(|agent| server.enqueue_body(agent, body.clone()))).await;
    // One statement reads one snapshot.
    let sql = "SELECT count(*) FROM heads AS h WHERE (h.status = 'suspended') <> (h.waiting > 0) OR h.waiting <>
               (SELECT count(*) FROM calls AS c WHERE c.run = h.run AND c.status IN ('waiting', 'claimed', 'parked', 'started'))";
    let database = server.database();
    let watch = async {
        let mut looks = 0;
        loop {
            assert_eq!(database.number(sql), 0, "after {looks} looks");
            looks += 1;
            tokio::task::yield_now().await;
        }
    };
    let work = async {
        serve(&server, "echo", 120).await;
        server.all_ended(&runs).await;
    };
    tokio::select! { () = work => {}, () = watch => {} }
    assert_eq!(server.number(sql), 0);
}

#[tokio::test]
async fn c_016_resuming_is_decided_by_the_waiting_set_in_whatever_order_results_come() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let server = turn_server().await;
        let run = server.enqueue("ada", r#"call echo {"n":1} call echo {"n":2} call echo {"n":3}"#).await;
        let calls = claim_all(&server, "echo", 3).await;
        for (count, index) in order.into_iter().enumerate() {
            let waits = head(&server, "ada").await;
            assert_eq!((&waits["status"], &waits["expecting_correlation_id"]), (&json!("suspended"), &Value::Null));
            assert_eq!(waits["waiting_tool_count"], 3 - count);
            server.report(&calls[index], calls[index]["arguments"]["n"].clone()).await.ok();
        }
        let view = server.ended(&run).await;
        // The results are added to the box in the order of the calls, so the order of their arrival does not matter.
        let deliverable = server.content(&view["deliverable_item_id"]).await;
        assert_eq!(deliverable["text"], "The results are: echo gave 1; echo gave 2; echo gave 3");
    }
}

#[tokio::test]
async fn c_017_no_path_sets_expecting_correlation_id() {
    let (server, _model, holder) = crowded(vec![Scene::Call(vec![("echo", json!({}))]), Scene::Hang]).await;
    // In each state every path refuses a value for the field, and none is shown afterwards.
    let expects_nothing = async |status: &str| {
        let turn = server.agent_is("ada", status).await["active_agent_turn_id"].clone();
        for (path, body) in [
            ("enqueue", json!({ "input": "x" })),
            ("actions", json!({ "action_id": "click", "tool": "echo" })),
            ("report", json!({ "agent_turn_id": turn, "tool_call_id": "call", "status": "success" })),
            ("stop", json!({ "agent_turn_id": turn, "reason": "x" })),
        ] {
            let mut body = body;
            body["expecting_correlation_id"] = json!("call");
            let refused = server.post(&format!("/v1/agents/ada/{path}"), body).await;
            assert_eq!((refused.status, refused.code()), (400, "unknown_field"), "{path}: {}", refused.body);
        }
        let seen = server.agent_is("ada", status).await;
        assert_eq!(seen.get("expecting_correlation_id"), Some(&Value::Null), "{status}");
    };
    server.enqueue("ada", "go").await;
    expects_nothing("dispatched").await;
    stop(&server, "holder", &holder).await;
    expects_nothing("suspended").await;
    serve(&server, "echo", 1).await;
    expects_nothing("running").await;
    let run = head(&server, "ada").await["active_agent_turn_id"].clone();
    stop(&server, "ada", run.as_str().expect("a turn")).await;
    expects_nothing("idle").await;
    // The boundary path, which could set it, does not do so either.
    server.post("/v1/agents/ada/actions", json!({ "action_id": "click", "tool": "echo" })).await.ok();
    expects_nothing("suspended").await;
}

#[tokio::test]
async fn c_018_activity_is_one_of_three_words() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo call send").await;
    serve(&server, "echo", 1).await;
    serve(&server, "send", 1).await;
    let events = server.events_until_end("ada", &run).await;
    let shown: Vec<(&str, Option<&str>)> = states(&events)
        .iter()
        .map(|event| (event.data["status"].as_str().expect("a status"), event.data["metadata"]["activity"].as_str()))
        .collect();
    let thinking = ("running", Some("thinking"));
    let waiting = ("suspended", Some("awaiting_tool_result"));
    assert_eq!(shown, [thinking, waiting, waiting, waiting, thinking, ("idle", None)]);
}

#[tokio::test]
async fn c_018_the_third_activity_is_a_call_that_the_server_runs() {
    let tools = McpServer::start().await;
    let mcp = format!("tools: {{ mcp: [ {{ label: tools, url: '{}' }} ] }}\nagents: {{ ada: {{ tools: [tools] }} }}\n", tools.url);
    let server = ServerBuilder::new(&mcp).start().await;
    let run = server.enqueue("ada", r#"call echo {"text":"hi"}"#).await;
    let events = server.events_until_end("ada", &run).await;
    let states = states(&events);
    // The second of the calls' states is that after the result.
    let activities: Vec<Option<&str>> = states.iter().map(|event| event.data["metadata"]["activity"].as_str()).collect();
    assert_eq!(activities, [Some("thinking"), Some("executing_tool"), Some("awaiting_tool_result"), Some("thinking"), None]);
}

#[tokio::test]
async fn c_018_losing_the_events_changes_no_outcome() {
    let server = turn_server().await;
    let mut journals = Vec::new();
    for agent in ["ada", "bob"] {
        // Ada's reader disconnects in the middle; Bob has no reader at all.
        let mut reader = if agent == "ada" { Some(server.events(agent, None).await) } else { None };
        let run = server.enqueue(agent, "call echo").await;
        if let Some(stream) = &mut reader {
            stream.next().await.expect("an event arrives");
        }
        drop(reader);
        let call = server.claim("echo").await;
        server.report(&call, json!("the same")).await.ok();
        let view = server.ended(&run).await;
        let deliverable = server.content(&view["deliverable_item_id"]).await;
        journals.push((server.kinds(&run).await, view["task_status"].clone(), deliverable));
    }
    assert_eq!(journals[0], journals[1]);
}

#[tokio::test]
async fn c_019_state_events_carry_the_current_tool_and_the_waiting_count() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo call send").await;
    serve(&server, "echo", 1).await;
    serve(&server, "send", 1).await;
    let events = server.events_until_end("ada", &run).await;
    let suspended = states(&events).into_iter().find(|event| event.data["status"] == "suspended").expect("it was suspended");
    assert_eq!(suspended.data["metadata"], json!({ "activity": "awaiting_tool_result", "current_tool": "echo", "waiting_tool_count": 2 }));
    assert_eq!(suspended.data["agent_turn_id"], run);
    assert!(suspended.data["turn_epoch"].is_u64() && suspended.data["output_box_id"].is_string());
    let thinking = states(&events).into_iter().find(|event| event.data["status"] == "running").expect("it ran");
    assert_eq!(thinking.data["metadata"]["waiting_tool_count"], 0);
}

#[tokio::test]
async fn c_020_a_turn_resumes_only_when_nothing_is_awaited_any_more() {
    let (server, model) =
        server_with_model(vec![Scene::Call(vec![("echo", json!({})), ("echo", json!({}))]), Scene::Say("done")], "").await;
    spy(&server);
    let run = server.enqueue("ada", "go").await;
    let calls = claim_all(&server, "echo", 2).await;
    server.report(&calls[1], json!("second")).await.ok();
    let waits = head(&server, "ada").await;
    assert_eq!((&waits["status"], &waits["waiting_tool_count"]), (&json!("suspended"), &json!(1)));
    // A repeated result does not count for the missing one.
    assert_eq!(server.report(&calls[1], json!("second again")).await.ok()["duplicate"], true);
    assert_eq!(head(&server, "ada").await["waiting_tool_count"], 1);
    assert_eq!(model.asked().len(), 1, "the model is not asked before all results are in");
    server.report(&calls[0], json!("first")).await.ok();
    server.ended(&run).await;
    assert_eq!(model.asked().len(), 2);
    let resumed = moves(&server, "ada").into_iter().filter(|seen| seen.edge() == ("suspended", "running")).collect::<Vec<_>>();
    assert_eq!(resumed.len(), 1);
    assert!(resumed.iter().all(|seen| seen.waiting == 0 && seen.new_run.as_deref() == Some(hex(&run))));
}

#[tokio::test]
async fn c_021_the_deadline_is_set_at_suspend_and_passes_without_outside_help() {
    let server = turn_server().await;
    spy(&server);
    let run = server.enqueue("ada", "call brief call echo").await;
    let waits = server.suspended("ada", &run).await;
    assert_eq!(waits["calls"]["open"][0]["tool"], "brief");
    let suspended = moves(&server, "ada").into_iter().find(|seen| seen.to == "suspended").expect("it was suspended");
    let deadline = suspended.deadline.expect("a suspend has a deadline");
    let created = server.number("SELECT created_at FROM calls WHERE tool = 'brief'");
    assert_eq!(deadline, created + 300, "the nearest of the calls' deadlines");
    // No report and no request arrives.
    let timeout = until("the timeout is reported", || async { server.inbox_of("ada", "timeout").await.pop() }).await;
    assert_eq!((&timeout["result_status"], &timeout["status"]), (&json!("timeout"), &json!("consumed")));
    let after = head(&server, "ada").await;
    assert_eq!((&after["status"], &after["waiting_tool_count"]), (&json!("suspended"), &json!(1)), "the other call is still awaited");
    serve(&server, "echo", 1).await;
    let view = server.ended(&run).await;
    assert!(server.content(&view["deliverable_item_id"]).await["text"].as_str().expect("words").contains("timeout"));
}
