//! async-openai. Its types are closed, so it cannot read a status or an event that OpenAI does not have. Therefore it asks for the standard
//! status, and talks to an agent with a server tool where the status would otherwise be another.

use async_openai::{
    Client,
    config::OpenAIConfig,
    types::responses::{
        CreateResponse, CreateResponseArgs, EasyInputMessage, FunctionCallOutputItemParam, FunctionTool, FunctionToolCall, InputItem,
        InputParam, Item, OutputItem, Response, ResponseStreamEvent, Status, Tool,
    },
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use windlass_tests::Server;

use crate::{
    frameworks::{ANSWERS, TURNS, check_model_requests, stage_with},
    program::TOKEN,
};

const AGENT: &str = "
tools: { external: [ { name: archive, description: finds things, effect: read } ] }
agents: { clerk: { model: fake, tools: [archive] } }
";

fn client(server: &Server) -> Client<OpenAIConfig> {
    let config = OpenAIConfig::new().with_api_base(format!("{}/v1", server.base())).with_api_key(TOKEN);
    let config = config.with_header("Windlass-Status", "standard").expect("a header");
    Client::with_config(config).with_http_client(reqwest::Client::builder().no_proxy().build().expect("a client"))
}

fn function(name: &str) -> Tool {
    let parameters = json!({
        "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"], "additionalProperties": false,
    });
    Tool::Function(FunctionTool { name: name.to_owned(), parameters: Some(parameters), strict: Some(true), ..FunctionTool::default() })
}

fn request(input: InputParam, previous: Option<&str>) -> CreateResponse {
    let mut request = CreateResponseArgs::default();
    request.model("agent/clerk").input(input).tools(vec![function("get_weather"), function("find_hotel")]);
    if let Some(previous) = previous {
        request.previous_response_id(previous);
    }
    request.build().expect("a request")
}

fn calls(response: &Response) -> Vec<&FunctionToolCall> {
    response.output.iter().filter_map(|item| if let OutputItem::FunctionCall(call) = item { Some(call) } else { None }).collect()
}

fn run(call: &FunctionToolCall) -> InputItem {
    let arguments: Value = serde_json::from_str(&call.arguments).expect("arguments are JSON");
    let city = arguments["city"].as_str().expect("a city");
    let output = if call.name == "get_weather" { format!("sunny in {city}") } else { format!("the Grand in {city}") };
    InputItem::Item(Item::FunctionCallOutput(FunctionCallOutputItemParam {
        call_id: Some(call.call_id.clone()),
        output: output.into(),
        id: None,
        status: None,
        name: None,
        namespace: None,
        caller: None,
    }))
}

/// Sends a request and parses every event of the stream into its type.
async fn streamed(client: &Client<OpenAIConfig>, request: CreateResponse, deltas: &mut String) -> Response {
    let mut events = client.responses().create_stream(request).await.expect("a stream");
    let mut last = None;
    while let Some(event) = events.next().await {
        let event = event.expect("every event has a type that it knows");
        if let ResponseStreamEvent::ResponseOutputTextDelta(delta) = &event {
            deltas.push_str(&delta.delta);
        }
        last = Some(event);
    }
    let Some(ResponseStreamEvent::ResponseCompleted(completed)) = last else { panic!("it ends with {last:?}") };
    completed.response
}

/// How a follow-up refers to the conversation before it.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    /// By the id of the previous response.
    Chained,
    /// The client sends the whole conversation again.
    SentAgain,
}

async fn converse(client: &Client<OpenAIConfig>, streams: bool, memory: Memory) {
    let (mut history, mut previous, mut texts, mut deltas) = (Vec::new(), None::<String>, Vec::new(), String::new());
    for turn in TURNS {
        let mut input = vec![InputItem::EasyMessage(EasyInputMessage::from(turn))];
        loop {
            history.extend(input.clone());
            let asked = match memory {
                Memory::Chained => request(InputParam::Items(input), previous.as_deref()),
                Memory::SentAgain => request(InputParam::Items(history.clone()), None),
            };
            let response = match streams {
                true => streamed(client, asked, &mut deltas).await,
                false => client.responses().create(asked).await.expect("a response that it can read"),
            };
            assert_eq!(response.status, Status::Completed);
            assert_eq!(response.usage.as_ref().map(|usage| usage.total_tokens), Some(10));
            previous = Some(response.id.clone());
            history.extend(response.output.iter().cloned().map(InputItem::from));
            input = calls(&response).into_iter().map(run).collect();
            if input.is_empty() {
                texts.push(response.output_text().expect("an answer has a text"));
                break;
            }
        }
    }
    assert_eq!(texts, ANSWERS);
    assert!(!streams || deltas == ANSWERS.concat(), "{deltas}");
}

#[tokio::test]
async fn async_openai_has_a_conversation_with_tools_and_the_standard_status() {
    let ways = [(false, Memory::Chained), (true, Memory::Chained), (false, Memory::SentAgain), (true, Memory::SentAgain)];
    let (server, model) = stage_with(ways.len(), AGENT).await;
    let client = client(&server);
    for (streams, memory) in ways {
        converse(&client, streams, memory).await;
    }
    check_model_requests(&model, ways.len());
}
