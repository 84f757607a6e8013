//! The frameworks that people build agents with: the OpenAI Agents SDK, the AI SDK through both of its providers, LangChain, and
//! async-openai. Each has the same conversation of two turns with two client functions, in every way that it supports, and the model must
//! receive the same messages.

use serde_json::{Value, json};
use windlass_tests::{FakeModel, McpServer, Scene, Server, ServerBuilder, Speech};

use crate::program::{Sdk, builder_with};

/// The user's messages in the two turns.
pub const TURNS: [&str; 2] = ["Plan a day in Oslo.", "And in Bergen?"];

/// The model's answers to them.
pub const ANSWERS: [&str; 2] = ["Oslo is sunny, and the Grand has a room.", "Bergen is the same."];

/// The model's replies in one conversation: two calls at once and an answer, then one call after the other and an answer. Each answer comes
/// in several deltas, and every iteration costs ten tokens.
fn conversation() -> [Scene; 5] {
    let request = |answer: &str, tools: &[&'static str], city: &str| {
        let chunks = answer.split_inclusive(' ').map(str::to_owned).collect();
        let calls = tools.iter().map(|tool| (*tool, json!({ "city": city }).to_string())).collect();
        Scene::Speak(Speech { chunks, calls, usage: Some([7, 3, 2]), ..Speech::default() })
    };
    [
        request("", &["get_weather", "find_hotel"], "Oslo"),
        request(ANSWERS[0], &[], ""),
        request("", &["get_weather"], "Bergen"),
        request("", &["find_hotel"], "Bergen"),
        request(ANSWERS[1], &[], ""),
    ]
}

/// The messages that the model has received when it gives the last answer of a conversation.
const EXPECTED_MESSAGES: [&str; 10] = [
    "user: Plan a day in Oslo.",
    "calls: get_weather Oslo, find_hotel Oslo",
    "tool: sunny in Oslo",
    "tool: the Grand in Oslo",
    "assistant: Oslo is sunny, and the Grand has a room.",
    "user: And in Bergen?",
    "calls: get_weather Bergen",
    "tool: sunny in Bergen",
    "calls: find_hotel Bergen",
    "tool: the Grand in Bergen",
];

/// The messages of a request to the model, without instructions.
fn messages_of(request: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let call = |call: &Value| {
        let arguments: Value = serde_json::from_str(&text(&call["function"]["arguments"])).expect("arguments are JSON");
        format!("{} {}", text(&call["function"]["name"]), text(&arguments["city"]))
    };
    let one = |message: &Value| match message["tool_calls"].as_array() {
        Some(calls) => format!("calls: {}", calls.iter().map(call).collect::<Vec<_>>().join(", ")),
        None => format!("{}: {}", text(&message["role"]), text(&message["content"])),
    };
    let messages = request["messages"].as_array().expect("a request has messages").iter();
    messages.filter(|message| message["role"] != "system").map(one).collect()
}

/// A server with this configuration for this number of conversations, and its model.
pub async fn stage_with(conversations: usize, more: &str) -> (Server, FakeModel) {
    let model = FakeModel::start((0..conversations).flat_map(|_| conversation()).collect()).await;
    (ServerBuilder::new(&(model.config() + more)).start().await, model)
}

/// Asserts that each conversation reached the model complete: nothing is missing, nothing is repeated, and the order is right.
pub fn check_model_requests(model: &FakeModel, conversations: usize) {
    let asked = model.asked();
    assert_eq!(asked.len(), 5 * conversations, "{asked:#?}");
    for conversation in asked.chunks(5) {
        for (request, length) in conversation.iter().zip([1, 4, 6, 8, 10]) {
            assert_eq!(messages_of(request), EXPECTED_MESSAGES[..length]);
        }
    }
}

/// The number of runs that name another run as their predecessor.
fn follow_ups(server: &Server) -> i64 {
    server.number(r#"SELECT count(*) FROM runs WHERE CAST(note AS TEXT) LIKE '%"previous_response_id":"resp_%'"#)
}

/// Runs a client program that has the conversation in each of these ways.
async fn converses(sdk: Sdk, program: &str, ways: &[&str]) {
    let (server, model) = stage_with(ways.len(), "").await;
    let saw = sdk.run(program, &server).await;
    assert_eq!(saw.as_object().map(|ways| ways.len()), Some(ways.len()), "{saw:#}");
    for way in ways {
        let ran = ["find_hotel Bergen", "find_hotel Oslo", "get_weather Bergen", "get_weather Oslo"];
        assert_eq!(saw[way], json!({ "texts": ANSWERS, "ran": ran, "deltas": ANSWERS.concat(), "tokens": 50 }), "{way}");
    }
    check_model_requests(&model, ways.len());
    // The requests that name a predecessor: all but the first one of each chained conversation.
    let chained = ways.iter().filter(|way| way.ends_with("chained")).count();
    assert_eq!(follow_ups(&server), 4 * chained as i64);
}

#[tokio::test]
async fn an_agent_of_the_agents_sdk_has_a_conversation_with_tools() {
    let ways = ["plain, chained", "plain, sent again", "streamed, chained", "streamed, sent again", "socket, chained"];
    converses(Sdk::Python, "agents_sdk", &ways).await;
}

#[tokio::test]
async fn langchain_has_a_conversation_with_tools() {
    let ways = ["plain, chained", "plain, sent again", "streamed, chained", "streamed, sent again"];
    converses(Sdk::Python, "langchain_chat", &ways).await;
}

#[tokio::test]
async fn the_ai_sdk_has_a_conversation_with_tools_through_its_provider_for_openai() {
    let ways = ["plain, referred to", "plain, sent again", "streamed, referred to", "streamed, sent again"];
    converses(Sdk::Node, "ai_sdk_openai", &ways).await;
}

#[tokio::test]
async fn the_ai_sdk_has_a_conversation_with_tools_through_its_provider_for_open_responses() {
    converses(Sdk::Node, "ai_sdk_open_responses", &["plain, sent again", "streamed, sent again"]).await;
}

/// Runs a client program whose user approves a call of a tool server in one run and rejects it in another, in each of these ways.
async fn approves(sdk: Sdk, program: &str, tool: &str, ways: &[&str]) {
    let tools = McpServer::start().await;
    let more = format!("{}egress: {{ allow: ['127.0.0.1'] }}\n", tools.config("tools"));
    let server = builder_with(&more).start().await;
    let saw = sdk.run_with(program, &server, &tools.url).await;
    assert_eq!(saw.as_object().map(|ways| ways.len()), Some(ways.len()), "{saw:#}");
    for way in ways {
        for (answer, text) in [("approved", "It was allowed."), ("rejected", "It was refused.")] {
            let asked = &saw[way][answer]["asked"];
            assert_eq!(asked.as_array().map(Vec::len), Some(1), "{way}, {answer}: {saw:#}");
            assert!(asked[0].to_string().contains(tool) && asked[0].to_string().contains("with leave"), "{way}, {answer}: {saw:#}");
            assert!(saw[way][answer]["text"].as_str().is_some_and(|said| said.ends_with(text)), "{way}, {answer}: {saw:#}");
        }
    }
    assert_eq!(tools.starts("echo").len(), ways.len(), "once where it was approved");
}

#[tokio::test]
async fn an_agent_of_the_agents_sdk_asks_its_callback_for_approval() {
    let ways = ["plain, chained", "plain, sent again", "streamed, chained", "streamed, sent again", "socket, chained"];
    approves(Sdk::Python, "agents_sdk_approve", "echo", &ways).await;
}

/// The provider for Open Responses has no tools of servers, and so no approvals.
#[tokio::test]
async fn the_ai_sdk_approves_a_call_through_its_provider_for_openai() {
    let ways = ["plain, referred to", "streamed, referred to", "plain, sent again", "streamed, sent again"];
    approves(Sdk::Node, "ai_sdk_approve", "mcp.echo", &ways).await;
}
