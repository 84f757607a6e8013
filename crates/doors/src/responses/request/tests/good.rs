//! Bodies as real clients send them, and how they are parsed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::read;
use crate::responses::request::{Allowed, Approval, Choice, ClientName, Create, Function, Mcp, Tool, ToolFilter};

/// Bodies that are accepted, by the client that sends them.
const BODIES: [(&str, &str); 42] = [
    ("plain text", r#"{"model":"m","input":"hi"}"#),
    ("no model: the default one", r#"{"input":"hi"}"#),
    ("whitespace", " {\n \"input\" : [ { \"role\" : \"user\" , \"content\" : \"hi\" } ] }\n"),
    ("compliance: basic", r#"{"model":"m","input":[{"type":"message","role":"user","content":"Say hello in exactly 3 words."}]}"#),
    (
        "compliance: phases",
        r#"{"model":"m","input":[{"type":"message","role":"assistant","content":"thinking","phase":"commentary"},
        {"type":"message","role":"assistant","content":"42","phase":"final_answer"},{"type":"message","role":"user","content":"why?"}]}"#,
    ),
    (
        "compliance: image",
        r#"{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"what?"},
        {"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}]}]}"#,
    ),
    (
        "compliance: system prompt",
        r#"{"model":"m","input":[{"type":"message","role":"system","content":"pirate"},{"type":"message","role":"user","content":"hi"}]}"#,
    ),
    (
        "compliance: tool",
        r#"{"model":"m","input":[{"type":"message","role":"user","content":"weather in SF?"}],"tools":[{"type":"function","name":
        "get_weather","description":"d","parameters":{"type":"object","properties":{"location":{"type":"string"}},"required":["location"]}}]}"#,
    ),
    (
        "compliance: compacted history",
        r#"{"model":"m","input":[{"type":"compaction","id":"cmp_1","encrypted_content":"abc"},{"type":"message","role":"user","content":"on"}]}"#,
    ),
    (
        "WebSocket frame with what it forbids",
        r#"{"type":"response.create","model":"m","stream":true,"generate":false,"store":false,"input":[{"role":"user","content":"hi"}]}"#,
    ),
    (
        "Codex",
        r#"{"model":"m","stream":true,"store":false,"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{"summary":"auto"},
        "include":["reasoning.encrypted_content"],"prompt_cache_key":"0199-thread","client_metadata":{"x":"y"},"input":[
        {"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"}]},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]}],"tools":[
        {"type":"function","name":"exec_command","description":"runs","strict":false,"parameters":{"type":"object"}},
        {"type":"namespace","name":"multi_agent_v1","description":"agents","tools":[
            {"type":"function","name":"close_agent","description":"c","strict":false,"parameters":{"type":"object"}}]},
        {"type":"web_search","external_web_access":false}]}"#,
    ),
    (
        "Codex, second iteration",
        r#"{"model":"m","stream":true,"store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]},
        {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"content":null,"encrypted_content":"e"},
        {"type":"function_call","id":"fc_1","name":"close_agent","namespace":"multi_agent_v1","arguments":"{}","call_id":"call_1"},
        {"type":"function_call_output","call_id":"call_1","output":"done"}]}"#,
    ),
    (
        "Codex, newest dialect",
        r#"{"model":"m","stream":true,"store":false,"reasoning":{"effort":"medium","context":"all_turns"},"input":[
        {"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"exec"}]}]},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}]}"#,
    ),
    (
        "Codex, compaction",
        r#"{"model":"m","stream":true,"tools":[],"input":[{"type":"message","role":"user","content":"sum up"},{"type":"compaction_trigger"}]}"#,
    ),
    (
        "Codex, custom tool",
        r#"{"model":"m","input":[{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** Begin Patch","status":"completed"},
        {"type":"custom_tool_call_output","call_id":"c","output":"ok"}],"tools":[{"type":"custom","name":"apply_patch","format":
        {"type":"grammar","syntax":"lark","definition":"start: x"}}],"tool_choice":{"type":"custom","name":"apply_patch"}}"#,
    ),
    (
        "Codex, local shell",
        r#"{"model":"m","input":[{"type":"local_shell_call","call_id":null,"status":"completed","action":{"type":"exec","command":["ls"]}},
        {"role":"user","content":"go on"}],"tools":[{"type":"local_shell"}]}"#,
    ),
    (
        "OpenAI Python, everything null",
        r#"{"model":"m","input":"hi","instructions":null,"previous_response_id":null,"store":null,"background":null,"stream":null,
        "tools":null,"tool_choice":null,"parallel_tool_calls":null,"max_tool_calls":null,"max_output_tokens":null,"temperature":null,
        "top_p":null,"top_logprobs":null,"reasoning":null,"text":null,"metadata":null,"include":null,"truncation":null,"service_tier":null,
        "prompt_cache_key":null,"safety_identifier":null,"user":null,"conversation":null,"prompt":null,"stream_options":null,
        "allowed_tools":null,"max_turns":null,"windlass":null,"context_management":null}"#,
    ),
    (
        "OpenAI Python, parsed output",
        r#"{"model":"m","input":"hi","text":{"format":{"type":"json_schema","strict":true,"name":"Event","schema":{"type":"object"}}}}"#,
    ),
    ("OpenAI JS, JSON mode", r#"{"model":"m","input":"hi","text":{"format":{"type":"json_object"},"verbosity":"low"}}"#),
    ("OpenAI, background", r#"{"model":"m","input":"hi","background":true,"stream":true}"#),
    ("OpenAI, a stored prompt", r#"{"model":"m","input":"hi","prompt":{"id":"pmpt_1","variables":{"a":"b"}}}"#),
    (
        "OpenAI, tool server",
        r#"{"model":"m","input":"roll","tools":[{"type":"mcp","server_label":"dmcp","server_description":"d","server_url":
        "https://dmcp.example/sse","require_approval":"never","allowed_tools":["roll"]}],"tool_choice":{"type":"mcp","server_label":"dmcp"}}"#,
    ),
    (
        "OpenAI, approval given",
        r#"{"model":"m","previous_response_id":"resp_1","input":[{"type":"mcp_approval_response","approve":true,
        "approval_request_id":"mcpr_1"}],"tools":[{"type":"mcp","server_label":"dmcp"}]}"#,
    ),
    (
        "OpenAI, hosted tools",
        r#"{"model":"m","input":"hi","tools":[{"type":"web_search_preview"},{"type":"file_search","vector_store_ids":["vs"]},
        {"type":"code_interpreter","container":{"type":"auto"}},{"type":"image_generation"},{"type":"windlass:box","size":3}],
        "tool_choice":{"type":"file_search"}}"#,
    ),
    (
        "Agents SDK, first turn",
        r#"{"model":"m","include":[],"input":[{"role":"user","content":"hi"}],"instructions":"be brief","tools":[]}"#,
    ),
    (
        "Agents SDK, full history",
        r#"{"model":"m","include":[],"input":[{"content":"hi","role":"user"},{"id":"msg_1","content":[{"annotations":[],"text":"calling",
        "type":"output_text","logprobs":[]}],"role":"assistant","status":"completed","type":"message"},{"arguments":"{\"city\":\"Rome\"}",
        "call_id":"call_1","name":"weather","type":"function_call","id":"fc_1","status":"completed"},
        {"call_id":"call_1","output":"sunny","type":"function_call_output"}],"tools":[{"name":"weather","parameters":{"type":"object"},
        "strict":true,"type":"function","description":"w"}],"tool_choice":"required"}"#,
    ),
    (
        "Agents SDK, chained",
        r#"{"model":"m","previous_response_id":"resp_1","input":[{"call_id":"call_1","output":"sunny","type":"function_call_output"}]}"#,
    ),
    (
        "Agents SDK, file and image results",
        r#"{"model":"m","previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"c","output":[
        {"type":"input_text","text":"t"},{"type":"input_image","file_id":"file_1","detail":"auto"},
        {"type":"input_file","file_data":"data:application/pdf;base64,JVBERg==","filename":"a.pdf"},{"type":"input_video","video_url":"https://v"}]}]}"#,
    ),
    ("Agents SDK, conversation", r#"{"model":"m","conversation":"conv_1","input":[{"role":"user","content":"hi"}]}"#),
    (
        "AI SDK",
        r#"{"model":"m","input":[{"role":"developer","content":"rules"},{"role":"user","content":[{"type":"input_text","text":"hi"}]}],
        "temperature":0,"max_output_tokens":16,"stream":true}"#,
    ),
    (
        "AI SDK, references",
        r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"item_reference","id":"msg_1"},
        {"type":"item_reference","id":"fc_1"},{"type":"function_call_output","call_id":"call_1","output":"{\"t\":21}"}]}"#,
    ),
    ("bare references", r#"{"model":"m","input":[{"id":"msg_1"},{"type":null,"id":"msg_2"}]}"#),
    (
        "AI SDK open-responses",
        r#"{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],"presence_penalty":0.5,
        "frequency_penalty":-2,"top_p":0.9,"tool_choice":{"type":"function","name":"w"},"tools":[{"type":"function","name":"w","parameters":{}}]}"#,
    ),
    (
        "LangChain",
        r#"{"model":"m","stream":false,"input":[{"type":"message","role":"system","content":"s"},{"type":"message","role":"user","content":"hi"}],
        "tools":[{"type":"function","name":"add","description":"a","parameters":{"type":"object"}}],"user":"u-1","top_logprobs":0}"#,
    ),
    (
        "LangChain, second iteration",
        r#"{"model":"m","stream":true,"input":[{"type":"message","role":"assistant","content":[],"id":"msg_1"},{"type":"function_call",
        "name":"add","arguments":"{\"a\":1}","call_id":"call_1"},{"type":"function_call_output","output":"3","call_id":"call_1"}]}"#,
    ),
    (
        "replayed server work",
        r#"{"model":"m","input":[{"type":"mcp_list_tools","id":"mcpl_1","server_label":"d","tools":[]},{"type":"mcp_call","id":"mcp_1",
        "server_label":"d","name":"roll","arguments":"{}","output":"4","error":null},{"role":"user","content":"again"}]}"#,
    ),
    (
        "unknown item and part",
        r#"{"model":"m","input":[{"type":"acme:thing","x":[1],"id":7,"status":[]},{"role":"user","content":[{"type":"acme:part","x":1}]}]}"#,
    ),
    (
        "audio",
        r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}]}]}"#,
    ),
    (
        "refusal in the history",
        r#"{"model":"m","input":[{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"ok"}]}"#,
    ),
    ("no input, but a previous response", r#"{"model":"m","previous_response_id":"resp_1"}"#),
    ("an empty input in a conversation", r#"{"model":"m","conversation":{"id":"conv_1"},"input":[]}"#),
    (
        "Windlass extensions",
        r#"{"model":"m","input":"hi","max_turns":3,"include":["windlass:lifecycle_events"],"windlass":{"max_turns":5,"note":1,"budgets":
        {"tokens":5000,"wall_time_s":1.5,"calls":3}}}"#,
    ),
];

#[test]
fn bodies_of_real_clients_are_accepted() {
    for (_, body) in BODIES {
        read(body);
    }
}

fn body(client: &str) -> Create {
    read(BODIES.iter().find(|(name, _)| *name == client).unwrap().1)
}

fn functions(create: &Create) -> Vec<&Function> {
    create.tools.iter().filter_map(|tool| if let Tool::Function(function) = tool { Some(function) } else { None }).collect()
}

fn server(create: &Create) -> &Mcp {
    create.tools.iter().find_map(|tool| if let Tool::Mcp(server) = tool { Some(server) } else { None }).unwrap()
}

#[test]
fn missing_fields_have_their_defaults() {
    let create = body("OpenAI Python, everything null");
    assert!(create.store && create.parallel_tool_calls && !create.background && !create.stream);
    assert_eq!((create.choice, create.allowed), (Choice::Auto, vec![]));
    assert_eq!((create.max_turns, create.max_tool_calls, create.max_output_tokens), (None, None, None));
    assert_eq!(serde_json::to_value(&create.sampling).unwrap(), json!({}));
    assert_eq!(create.echo.tool_choice, "auto");
    assert_eq!(create.echo.text, json!({ "format": { "type": "text" } }));
    assert_eq!(create.echo.reasoning, Value::Null);
    assert!(create.echo.tools.is_empty() && create.metadata.is_empty() && create.include.is_empty());
}

#[test]
fn a_text_is_a_message_and_items_are_kept_unchanged() {
    let create = read(r#"{"input":"say \"h\u00e4\"\n"}"#);
    let item: Value = serde_json::from_str(create.input[0].get()).unwrap();
    assert_eq!(item, json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "say \"hä\"\n" }] }));

    let item = r#"{ "role":"user",  "content":"hi", "z":1.50, "a":{"b":[ ]} }"#;
    assert_eq!(read(&format!(r#"{{"input":[ {item} ]}}"#)).input[0].get(), item);
}

#[test]
fn windlass_limits_are_read_and_the_lower_number_of_turns_applies() {
    let create = body("Windlass extensions");
    assert_eq!((create.max_turns, create.budget_tokens, create.budget_wall_ms), (Some(3), Some(5000), Some(1500)));
    assert_eq!(create.include, ["windlass:lifecycle_events"]);
    // Languages without integers can't write the number otherwise.
    assert_eq!(read(r#"{"input":"hi","max_output_tokens":1e3,"max_tool_calls":2.0}"#).max_output_tokens, Some(1000));
    assert_eq!(read(r#"{"input":"hi","max_output_tokens":9223372036854775807}"#).max_output_tokens, Some(9_223_372_036_854_775_807));
}

#[test]
fn sampling_parameters_are_passed_on_and_echoed() {
    let create = read(
        r#"{"input":"hi","temperature":0.5,"truncation":"auto","reasoning":{"summary":"auto","x":1},"metadata":{"k":"v"},"text":{"format":
        {"type":"json_schema","name":"n","schema":{"type":"object"}},"verbosity":null}}"#,
    );
    let format = json!({ "type": "json_schema", "name": "n", "schema": { "type": "object" } });
    let expected = json!({ "temperature": 0.5, "truncation": "auto", "reasoning": { "summary": "auto", "x": 1 },
        "text": { "format": format, "verbosity": null } });
    assert_eq!(serde_json::to_value(&create.sampling).unwrap(), expected);
    assert_eq!(create.echo.reasoning, json!({ "effort": null, "summary": "auto", "x": 1 }));
    let mut echoed = format;
    echoed["description"] = Value::Null;
    echoed["strict"] = json!(false);
    assert_eq!(create.echo.text, json!({ "format": echoed }));
    assert_eq!(create.metadata["k"], "v");
    let create = body("Agents SDK, first turn");
    assert_eq!((create.model.as_deref(), create.instructions.as_deref()), (Some("m"), Some("be brief")));
}

#[test]
fn tools_are_echoed_whole_and_unknown_ones_are_ignored() {
    let create = body("Codex");
    assert_eq!(create.tools.len(), 3);
    assert_eq!((functions(&create)[0].description.as_deref(), functions(&create)[0].strict), (Some("runs"), Some(false)));
    assert!(matches!(&create.tools[2], Tool::Other));
    assert_eq!(create.echo.tools.len(), 3);
    assert_eq!(create.echo.tools[1]["tools"][0]["name"], "close_agent");
    assert_eq!(create.echo.tools[2], json!({ "type": "web_search", "external_web_access": false }));

    let create = read(r#"{"input":"hi","tools":[{"type":"function","name":"a","defer_loading":true}]}"#);
    let echo = json!({ "type": "function", "name": "a", "defer_loading": true, "description": null, "parameters": null, "strict": null });
    assert_eq!(create.echo.tools, [echo]);
    assert_eq!(functions(&create)[0].parameters, None);
}

#[test]
fn namespaces_are_flattened_and_can_be_restored() {
    let create = body("Codex");
    let client_name = ClientName { name: "close_agent".to_owned(), namespace: Some("multi_agent_v1".to_owned()), is_custom: false };
    assert_eq!(create.client_names.into_iter().collect::<Vec<_>>(), [("close_agent".to_owned(), client_name)]);

    let create = read(
        r#"{"input":"hi","tools":[{"type":"function","name":"open"},{"type":"function","name":"doors__open"},
        {"type":"namespace","name":"files","tools":[{"type":"function","name":"open"},{"type":"function","name":"close"}]},
        {"type":"namespace","name":"doors","tools":[{"type":"function","name":"open"},{"type":"custom","name":"patch"}]}]}"#,
    );
    let model_names: Vec<&str> = functions(&create).iter().map(|function| function.model_name.as_str()).collect();
    assert_eq!(model_names, ["open", "doors__open", "files__open", "close", "doors__open_2", "patch"]);
    let restored = |name: &str| create.client_names.get(name).and_then(|own| Some((own.namespace.as_deref()?, own.name.as_str())));
    assert_eq!(restored("open"), None);
    assert_eq!(restored("files__open"), Some(("files", "open")));
    assert_eq!(restored("close"), Some(("files", "close")));
    assert_eq!(restored("doors__open_2"), Some(("doors", "open")));
}

#[test]
fn generated_names_are_short_enough_for_any_provider() {
    let name = "n".repeat(64);
    let group = |namespace: &str| format!(r#"{{"type":"namespace","name":"{namespace}","tools":[{{"type":"function","name":"{name}"}}]}}"#);
    let create = read(&format!(r#"{{"input":"hi","tools":[{},{},{}]}}"#, group("a b"), group("ä"), group("ö")));
    let model_names: BTreeSet<&str> = functions(&create).iter().map(|function| function.model_name.as_str()).collect();
    assert!(model_names.iter().all(|name| name.len() <= 64 && name.is_ascii() && !name.contains(' ')), "{model_names:?}");
    assert_eq!((model_names.len(), create.client_names.len()), (3, 3));
}

#[test]
fn choices_use_the_models_names_of_tools() {
    let tools = r#"[{"type":"function","name":"a"},{"type":"mcp","server_label":"docs"},
        {"type":"namespace","name":"n","tools":[{"type":"function","name":"a"},{"type":"function","name":"b"}]}]"#;
    let choose = |choice: &str| read(&format!(r#"{{"input":"hi","tools":{tools},"tool_choice":{choice}}}"#));
    let mcp = |name: Option<&str>| Choice::Mcp { label: "docs".to_owned(), name: name.map(str::to_owned) };
    let rows = [
        (r#""none""#, Choice::None),
        (r#""required""#, Choice::Required),
        (r#"{"type":"none"}"#, Choice::None),
        (r#"{"type":"function","name":"a"}"#, Choice::Function("a".to_owned())),
        (r#"{"type":"function","name":"a","namespace":"n"}"#, Choice::Function("n__a".to_owned())),
        (r#"{"type":"function","name":"b"}"#, Choice::Function("b".to_owned())),
        (r#"{"type":"mcp","server_label":"docs"}"#, mcp(None)),
        (r#"{"type":"mcp","server_label":"docs","name":"search"}"#, mcp(Some("search"))),
        (r#"{"type":"web_search_preview"}"#, Choice::Other),
    ];
    for (choice, expected) in rows {
        assert_eq!(choose(choice).choice, expected, "{choice}");
    }
    assert_eq!(choose(r#"{"type":"function","name":"a"}"#).echo.tool_choice, json!({ "type": "function", "name": "a" }));
}

#[test]
fn allowed_tools_are_a_limit_in_either_spelling() {
    let tools = r#"[{"type":"function","name":"a"},{"type":"mcp","server_label":"docs"},{"type":"web_search"},
        {"type":"namespace","name":"n","tools":[{"type":"function","name":"a"}]}]"#;
    let allow = |fields: &str| read(&format!(r#"{{"input":"hi","tools":{tools},{fields}}}"#));
    let tool = |name: &str| Allowed::Tool(name.to_owned());

    // A name without a type allows every function of that name. A name of no function may be a server's tool.
    let named = allow(r#""allowed_tools":["a","search"]"#);
    assert_eq!(named.allowed, [tool("a"), tool("n__a"), tool("search")]);
    assert_eq!((named.choice, named.echo.tool_choice), (Choice::Auto, json!("auto")));
    assert_eq!(allow(r#""allowed_tools":[]"#).allowed, []);

    let entries = r#"[{"type":"function","name":"a"},{"type":"mcp","server_label":"docs"},{"type":"web_search"}]"#;
    let listed = allow(&format!(r#""tool_choice":{{"type":"allowed_tools","tools":{entries}}}"#));
    assert_eq!(listed.allowed, [tool("a"), Allowed::Mcp { label: "docs".to_owned(), name: None }, Allowed::Other]);
    assert_eq!(listed.choice, Choice::Auto);
    assert_eq!(listed.echo.tool_choice["mode"], "auto");
    let required = allow(r#""tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"a"}]}"#);
    assert_eq!(required.choice, Choice::Required);
}

#[test]
fn secrets_of_tool_servers_are_not_echoed() {
    let create = read(
        r#"{"input":"hi","tools":[{"type":"mcp","server_label":"docs","server_url":"https://x.example/mcp","authorization":"s3cret",
        "headers":{"X-Key":"s3cret too"},"allowed_tools":{"tool_names":["search"],"read_only":true},
        "require_approval":{"never":{"tool_names":["search"]}}}]}"#,
    );
    let docs = server(&create);
    assert_eq!((docs.label.as_str(), docs.url.as_deref()), ("docs", Some("https://x.example/mcp")));
    let headers: Vec<(&str, &str)> = docs.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("X-Key", "s3cret too"), ("Authorization", "Bearer s3cret")]);
    let search = ToolFilter { names: Some(vec!["search".to_owned()]), read_only: None };
    assert_eq!(docs.allowed, Some(ToolFilter { read_only: Some(true), ..search.clone() }));
    assert_eq!(docs.approval, Some(Approval::Some { always: None, never: Some(search) }));
    let echo = create.echo.tools[0].to_string();
    assert!(!echo.contains("s3cret") && echo.contains("X-Key") && echo.contains("https://x.example/mcp"), "{echo}");

    let create = body("OpenAI, tool server");
    assert_eq!(server(&create).approval, Some(Approval::Never));
    let create = body("OpenAI, approval given");
    assert_eq!((server(&create).url.as_ref(), server(&create).approval.as_ref()), (None, None));
}

#[test]
fn tm_17_secrets_of_tool_servers_are_redacted_at_any_depth() {
    let server = |label: &str| {
        format!(
            r#"{{"type":"mcp","server_label":"{label}","server_url":"https://x.example/mcp?key=s3cret&team=blue","authorization":"s3cret",
            "headers":{{"X-Key":"s3cret"}}}}"#
        )
    };
    let group = |inner: &str| format!(r#"{{"type":"namespace","name":"n","tools":[{inner}]}}"#);
    let unknown = format!(r#"{{"type":"next_years_tool","of":{{"servers":[{}]}}}}"#, server("e"));
    let schema =
        r#"{"type":"function","name":"f","parameters":{"properties":{"authorization":{"type":"string"},"headers":{"type":"object"}}}}"#;
    let tools = [server("a"), group(&server("b")), group(&group(&server("c"))), unknown, schema.to_owned()].join(",");
    let added = format!(r#"{{"type":"additional_tools","role":"developer","tools":[{},{}]}}"#, server("d"), group(&server("d")));
    let message = r#"{"role":"user","content":"authorization: { \"type\": \"mcp\" }  "}"#;
    let create = read(&format!(r#"{{"input":[{message},{added}],"tools":[{tools}]}}"#));
    let shown = serde_json::to_string(&(&create.echo.tools, &create.input)).expect("it can be written");
    assert!(!shown.contains("s3cret") && !shown.contains("blue"), "{shown}");
    assert_eq!(shown.matches("https://x.example/mcp?redacted").count(), 6, "{shown}");
    assert_eq!(create.echo.tools[1]["tools"][0]["headers"]["X-Key"], "<redacted>");
    assert_eq!(create.echo.tools[4]["parameters"]["properties"]["authorization"], json!({ "type": "string" }), "a schema has no secrets");
    assert_eq!(create.input[0].get(), message, "what has no servers in it is kept as it came");
    // The credentials that the server needs are kept.
    let a = create.tools.iter().find_map(|tool| if let Tool::Mcp(server) = tool { Some(server) } else { None }).expect("a server");
    assert_eq!((a.url.as_deref(), a.headers.len()), (Some("https://x.example/mcp?key=s3cret&team=blue"), 2));
}

#[test]
fn with_a_conversation_or_an_earlier_response_input_is_optional() {
    assert_eq!(body("no input, but a previous response").previous.as_deref(), Some("resp_1"));
    assert_eq!(body("Agents SDK, conversation").conversation.as_deref(), Some("conv_1"));
    assert_eq!(body("an empty input in a conversation").conversation.as_deref(), Some("conv_1"));
}

#[test]
fn the_longest_input_is_accepted() {
    let item = r#"{"type":"function_call_output","call_id":"c","output":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;
    let create = read(&format!(r#"{{"input":[{}]}}"#, vec![item; 10_000].join(",")));
    assert_eq!(create.input.len(), 10_000);
}
