//! Every wrong type, range and reference is a 400 that names its parameter.

use super::refusal;

const JSON: &str = "invalid_json";
const MISSING: &str = "missing_required_parameter";
const TYPE: &str = "invalid_type";
const VALUE: &str = "invalid_value";
const LONG: &str = "string_above_max_length";
const MANY: &str = "array_above_max_length";
const PAIRS: &str = "object_above_max_properties";
const FEW_WHOLE: &str = "integer_below_min_value";
const MUCH_WHOLE: &str = "integer_above_max_value";
const FEW: &str = "decimal_below_min_value";
const MUCH: &str = "decimal_above_max_value";

/// Checks that each row's fragment, put into a body, is refused with the row's parameter and code.
fn check(body: impl Fn(&str) -> String, rows: &[(&str, &str, &'static str)]) {
    for (fragment, param, code) in rows {
        let body = body(fragment);
        assert_eq!(refusal(body.as_bytes()), Some(((*param).to_owned(), *code)), "{body}");
    }
}

fn with_field(field: &str) -> String {
    format!(r#"{{"input":"hi",{field}}}"#)
}

fn with_item(item: &str) -> String {
    format!(r#"{{"model":"m","input":[{{"role":"user","content":"hi"}},{item}]}}"#)
}

fn with_part(part: &str) -> String {
    with_item(&format!(r#"{{"type":"message","role":"user","content":[{part}]}}"#))
}

fn with_tool(tool: &str) -> String {
    with_field(&format!(r#""tools":[{{"type":"function","name":"first"}},{tool}]"#))
}

fn with_server(fields: &str) -> String {
    with_tool(&format!(r#"{{"type":"mcp","server_label":"docs",{fields}}}"#))
}

fn with_choice(choice: &str) -> String {
    let tools = r#"[{"type":"function","name":"a"},{"type":"mcp","server_label":"docs"},{"type":"custom","name":"patch"},
        {"type":"namespace","name":"n","tools":[{"type":"function","name":"twice"}]},
        {"type":"namespace","name":"o","tools":[{"type":"function","name":"twice"}]}]"#;
    with_field(&format!(r#""tools":{tools},"tool_choice":{choice}"#))
}

#[test]
fn bodies_that_are_no_objects() {
    let rows = [
        ("", "", JSON),
        ("   ", "", JSON),
        ("{", "", JSON),
        (r#"{"input":"hi"} x"#, "", JSON),
        (r#"{"input":"hi",}"#, "", JSON),
        ("{'input':'hi'}", "", JSON),
        (r#"{"input":"half a pair: \ud83d"}"#, "", JSON),
        (r#"{"input":"hi","input":"ho"}"#, "", JSON),
        (r#"{"input":[{"type":"x","a":1,"a":2}]}"#, "", JSON),
        (r#"{"input":"hi","temperature":1e999}"#, "", JSON),
        (r#"{"input":"hi","temperature":NaN}"#, "", JSON),
        (r#"{"input":"hi","store":True}"#, "", JSON),
        ("null", "", TYPE),
        ("[]", "", TYPE),
        (r#"[{"input":"hi"}]"#, "", TYPE),
        (r#""hi""#, "", TYPE),
        ("1", "", TYPE),
        ("true", "", TYPE),
    ];
    check(str::to_owned, &rows);
    assert_eq!(refusal(b"{\"input\":\"\xff\"}"), Some((String::new(), JSON)));
}

#[test]
fn too_deep_nesting_is_refused() {
    for depth in [100, 200, 100_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(refusal(with_field(&format!(r#""unknown":{deep}"#)).as_bytes()), Some((String::new(), JSON)), "{depth}");
        assert_eq!(refusal("[".repeat(depth).as_bytes()), Some((String::new(), JSON)), "{depth}");
        assert_eq!(refusal(r#"{"a":"#.repeat(depth).as_bytes()), Some((String::new(), JSON)), "{depth}");
    }
}

#[test]
fn inputs() {
    let rows = [
        ("{}", "input", MISSING),
        (r#"{"model":"m"}"#, "input", MISSING),
        (r#"{"input":null}"#, "input", MISSING),
        (r#"{"input":[]}"#, "input", MISSING),
        (r#"{"input":7}"#, "input", TYPE),
        (r#"{"input":true}"#, "input", TYPE),
        (r#"{"input":{"role":"user","content":"hi"}}"#, "input", TYPE),
        (r#"{"input":["hi"]}"#, "input[0]", TYPE),
        (r#"{"input":[null]}"#, "input[0]", TYPE),
        (r#"{"input":[[]]}"#, "input[0]", TYPE),
        (r#"{"input":[{}]}"#, "input[0].type", MISSING),
    ];
    check(str::to_owned, &rows);
    let many = vec![r#"{"id":"x"}"#; 10_001].join(",");
    assert_eq!(refusal(format!(r#"{{"input":[{many}]}}"#).as_bytes()), Some(("input".to_owned(), MANY)));
    let long = "x".repeat(10 << 20);
    assert_eq!(refusal(format!(r#"{{"input":"{long}"}}"#).as_bytes()), Some(("input".to_owned(), LONG)));
}

#[test]
fn items() {
    let rows = [
        (r#"{"type":7}"#, "input[1].type", TYPE),
        (r#"{"type":["message"]}"#, "input[1].type", TYPE),
        (r#"{"type":"message","content":"hi"}"#, "input[1].role", MISSING),
        (r#"{"role":"tool","content":"hi"}"#, "input[1].role", VALUE),
        (r#"{"role":1,"content":"hi"}"#, "input[1].role", TYPE),
        (r#"{"role":"user"}"#, "input[1].content", MISSING),
        (r#"{"role":"assistant","content":null}"#, "input[1].content", MISSING),
        (r#"{"role":"user","content":7}"#, "input[1].content", TYPE),
        (r#"{"role":"user","content":{"type":"input_text","text":"hi"}}"#, "input[1].content", TYPE),
        (r#"{"role":"user","content":"hi","id":7}"#, "input[1].id", TYPE),
        (r#"{"role":"user","content":"hi","status":{}}"#, "input[1].status", TYPE),
        (r#"{"role":"assistant","content":"hi","phase":1}"#, "input[1].phase", TYPE),
        (r#"{"type":"function_call","name":"a","arguments":"{}"}"#, "input[1].call_id", MISSING),
        (r#"{"type":"function_call","call_id":"","name":"a","arguments":"{}"}"#, "input[1].call_id", VALUE),
        (r#"{"type":"function_call","call_id":"c","arguments":"{}"}"#, "input[1].name", MISSING),
        (r#"{"type":"function_call","call_id":"c","name":["a"],"arguments":"{}"}"#, "input[1].name", TYPE),
        (r#"{"type":"function_call","call_id":"c","name":"a"}"#, "input[1].arguments", MISSING),
        (r#"{"type":"function_call","call_id":"c","name":"a","arguments":{}}"#, "input[1].arguments", TYPE),
        (r#"{"type":"function_call","call_id":"c","name":"a","arguments":"{}","namespace":1}"#, "input[1].namespace", TYPE),
        (r#"{"type":"function_call_output","output":"1"}"#, "input[1].call_id", MISSING),
        (r#"{"type":"function_call_output","call_id":9,"output":"1"}"#, "input[1].call_id", TYPE),
        (r#"{"type":"function_call_output","call_id":"c\u0000","output":"1"}"#, "input[1].call_id", VALUE),
        (r#"{"type":"function_call_output","call_id":"c"}"#, "input[1].output", MISSING),
        (r#"{"type":"function_call_output","call_id":"c","output":{"a":1}}"#, "input[1].output", TYPE),
        (r#"{"type":"function_call_output","call_id":"c","output":[1]}"#, "input[1].output[0]", TYPE),
        (r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_text"}]}"#, "input[1].output[0].text", MISSING),
        (r#"{"type":"item_reference"}"#, "input[1].id", MISSING),
        (r#"{"type":null,"id":4}"#, "input[1].id", TYPE),
        (r#"{"id":""}"#, "input[1].id", VALUE),
        (r#"{"type":"reasoning","summary":"so"}"#, "input[1].summary", TYPE),
        (r#"{"type":"reasoning","summary":[],"encrypted_content":1}"#, "input[1].encrypted_content", TYPE),
        (r#"{"type":"compaction"}"#, "input[1].encrypted_content", MISSING),
        (r#"{"type":"mcp_approval_response","approve":true}"#, "input[1].approval_request_id", MISSING),
        (r#"{"type":"mcp_approval_response","approval_request_id":"a"}"#, "input[1].approve", MISSING),
        (r#"{"type":"mcp_approval_response","approval_request_id":"a","approve":"yes"}"#, "input[1].approve", TYPE),
        (r#"{"type":"custom_tool_call","call_id":"c","name":"patch"}"#, "input[1].input", MISSING),
    ];
    check(with_item, &rows);
}

#[test]
fn parts_of_content() {
    let rows = [
        (r#""hi""#, "input[1].content[0]", TYPE),
        ("null", "input[1].content[0]", TYPE),
        (r#"{"text":"hi"}"#, "input[1].content[0].type", MISSING),
        (r#"{"type":3}"#, "input[1].content[0].type", TYPE),
        (r#"{"type":"input_text"}"#, "input[1].content[0].text", MISSING),
        (r#"{"type":"input_text","text":3}"#, "input[1].content[0].text", TYPE),
        (r#"{"type":"input_text","text":"a"},{"type":"output_text","text":null}"#, "input[1].content[1].text", MISSING),
        (r#"{"type":"refusal"}"#, "input[1].content[0].refusal", MISSING),
        (r#"{"type":"input_image"}"#, "input[1].content[0].image_url", MISSING),
        (r#"{"type":"input_image","image_url":{"url":"data:"}}"#, "input[1].content[0].image_url", TYPE),
        (r#"{"type":"input_image","image_url":"data:","detail":"fine"}"#, "input[1].content[0].detail", VALUE),
        (r#"{"type":"input_file","filename":"a.pdf"}"#, "input[1].content[0].file_data", MISSING),
        (r#"{"type":"input_file","file_url":1}"#, "input[1].content[0].file_url", TYPE),
        (r#"{"type":"input_audio"}"#, "input[1].content[0].input_audio", MISSING),
        (r#"{"type":"input_audio","input_audio":"UklGRg=="}"#, "input[1].content[0].input_audio", TYPE),
        (r#"{"type":"input_audio","input_audio":{"data":"x"}}"#, "input[1].content[0].input_audio.format", MISSING),
        (r#"{"type":"input_video"}"#, "input[1].content[0].video_url", MISSING),
    ];
    check(with_part, &rows);
}

#[test]
fn fields_of_the_wrong_type() {
    let rows = [
        (r#""model":7"#, "model", TYPE),
        (r#""model":"""#, "model", VALUE),
        (r#""model":"a\nb""#, "model", VALUE),
        (r#""instructions":["be brief"]"#, "instructions", TYPE),
        (r#""previous_response_id":12"#, "previous_response_id", TYPE),
        (r#""previous_response_id":"""#, "previous_response_id", VALUE),
        (r#""conversation":[]"#, "conversation", TYPE),
        (r#""conversation":{}"#, "conversation.id", MISSING),
        (r#""conversation":"c","previous_response_id":"r""#, "previous_response_id", VALUE),
        (r#""store":"false""#, "store", TYPE),
        (r#""stream":1"#, "stream", TYPE),
        (r#""background":"yes""#, "background", TYPE),
        (r#""background":true,"store":false"#, "background", VALUE),
        (r#""parallel_tool_calls":0"#, "parallel_tool_calls", TYPE),
        (r#""temperature":"hot""#, "temperature", TYPE),
        (r#""metadata":[]"#, "metadata", TYPE),
        (r#""metadata":{"a":1}"#, "metadata.a", TYPE),
        (r#""metadata":{"a":null}"#, "metadata.a", TYPE),
        (r#""include":"reasoning.encrypted_content""#, "include", TYPE),
        (r#""include":[1]"#, "include[0]", TYPE),
        (r#""user":5"#, "user", TYPE),
        (r#""prompt_cache_key":5"#, "prompt_cache_key", TYPE),
        (r#""safety_identifier":{}"#, "safety_identifier", TYPE),
        (r#""truncation":"sometimes""#, "truncation", VALUE),
        (r#""truncation":true"#, "truncation", TYPE),
        (r#""service_tier":"gold""#, "service_tier", VALUE),
        (r#""reasoning":"high""#, "reasoning", TYPE),
        (r#""reasoning":{"effort":"extreme"}"#, "reasoning.effort", VALUE),
        (r#""reasoning":{"effort":3}"#, "reasoning.effort", TYPE),
        (r#""reasoning":{"summary":"long"}"#, "reasoning.summary", VALUE),
        (r#""text":"json""#, "text", TYPE),
        (r#""text":{"verbosity":"chatty"}"#, "text.verbosity", VALUE),
        (r#""text":{"format":"json_object"}"#, "text.format", TYPE),
        (r#""text":{"format":{}}"#, "text.format.type", MISSING),
        (r#""text":{"format":{"type":"xml"}}"#, "text.format.type", VALUE),
        (r#""text":{"format":{"type":"json_schema","schema":{}}}"#, "text.format.name", MISSING),
        (r#""text":{"format":{"type":"json_schema","name":"a"}}"#, "text.format.schema", MISSING),
        (r#""text":{"format":{"type":"json_schema","name":"a","schema":true}}"#, "text.format.schema", TYPE),
        (r#""text":{"format":{"type":"json_schema","name":"a","schema":{},"strict":"no"}}"#, "text.format.strict", TYPE),
        (r#""windlass":true"#, "windlass", TYPE),
        (r#""windlass":{"budgets":1}"#, "windlass.budgets", TYPE),
    ];
    check(with_field, &rows);
}

#[test]
fn numbers_out_of_range() {
    let rows = [
        (r#""temperature":-0.1"#, "temperature", FEW),
        (r#""temperature":2.01"#, "temperature", MUCH),
        (r#""top_p":-1"#, "top_p", FEW),
        (r#""top_p":1.5"#, "top_p", MUCH),
        (r#""presence_penalty":-2.5"#, "presence_penalty", FEW),
        (r#""presence_penalty":3"#, "presence_penalty", MUCH),
        (r#""frequency_penalty":-3"#, "frequency_penalty", FEW),
        (r#""frequency_penalty":2.5"#, "frequency_penalty", MUCH),
        (r#""top_logprobs":-1"#, "top_logprobs", FEW_WHOLE),
        (r#""top_logprobs":21"#, "top_logprobs", MUCH_WHOLE),
        (r#""top_logprobs":1.5"#, "top_logprobs", TYPE),
        (r#""max_output_tokens":15"#, "max_output_tokens", FEW_WHOLE),
        (r#""max_output_tokens":-100"#, "max_output_tokens", FEW_WHOLE),
        (r#""max_output_tokens":9223372036854775808"#, "max_output_tokens", MUCH_WHOLE),
        (r#""max_output_tokens":99999999999999999999999"#, "max_output_tokens", MUCH_WHOLE),
        (r#""max_output_tokens":"100""#, "max_output_tokens", TYPE),
        (r#""max_tool_calls":0"#, "max_tool_calls", FEW_WHOLE),
        (r#""max_tool_calls":4294967296"#, "max_tool_calls", MUCH_WHOLE),
        (r#""max_turns":0"#, "max_turns", FEW_WHOLE),
        (r#""max_turns":1001"#, "max_turns", MUCH_WHOLE),
        (r#""max_turns":[10]"#, "max_turns", TYPE),
        (r#""windlass":{"max_turns":0}"#, "windlass.max_turns", FEW_WHOLE),
        (r#""windlass":{"budgets":{"tokens":0}}"#, "windlass.budgets.tokens", FEW_WHOLE),
        (r#""windlass":{"budgets":{"wall_time_s":0}}"#, "windlass.budgets.wall_time_s", FEW),
        (r#""windlass":{"budgets":{"wall_time_s":1e9}}"#, "windlass.budgets.wall_time_s", MUCH),
        (r#""windlass":{"budgets":{"wall_time_s":"1m"}}"#, "windlass.budgets.wall_time_s", TYPE),
    ];
    check(with_field, &rows);
}

#[test]
fn texts_and_lists_that_are_too_long() {
    let row = |field: &str, param: &str, code| {
        assert_eq!(refusal(with_field(field).as_bytes()), Some((param.to_owned(), code)), "{field}");
    };
    let (long, longer) = ("x".repeat(129), "x".repeat(513));
    row(&format!(r#""prompt_cache_key":"{long}""#), "prompt_cache_key", LONG);
    row(&format!(r#""safety_identifier":"{long}""#), "safety_identifier", LONG);
    row(&format!(r#""metadata":{{"a":"{longer}"}}"#), "metadata.a", LONG);
    row(&format!(r#""metadata":{{"{}":"b"}}"#, &long[..65]), &format!("metadata.{}", &long[..65]), LONG);
    row(&format!(r#""model":"{longer}""#), "model", LONG);
    row(&format!(r#""tools":[{{"type":"function","name":"{}"}}]"#, &long[..65]), "tools[0].name", LONG);
    let pairs: Vec<String> = (0..17).map(|number| format!(r#""k{number}":"v""#)).collect();
    row(&format!(r#""metadata":{{{}}}"#, pairs.join(",")), "metadata", PAIRS);
    row(&format!(r#""include":[{}]"#, vec![r#""a""#; 65].join(",")), "include", MANY);
    let tools: Vec<String> = (0..1025).map(|number| format!(r#"{{"type":"function","name":"t{number}"}}"#)).collect();
    row(&format!(r#""tools":[{}]"#, tools.join(",")), "tools", MANY);
    let groups: Vec<String> = tools
        .chunks(600)
        .enumerate()
        .map(|(n, tools)| format!(r#"{{"type":"namespace","name":"n{n}","tools":[{}]}}"#, tools.join(",")))
        .collect();
    row(&format!(r#""tools":[{}]"#, groups.join(",")), "tools", MANY);
    let allowed = vec![r#"{"type":"function","name":"a"}"#; 129].join(",");
    let tools = r#""tools":[{"type":"function","name":"a"}]"#;
    row(&format!(r#"{tools},"tool_choice":{{"type":"allowed_tools","tools":[{allowed}]}}"#), "tool_choice.tools", MANY);
}

#[test]
fn tools() {
    let rows = [
        (r#""exec""#, "tools[1]", TYPE),
        ("{}", "tools[1].type", MISSING),
        (r#"{"type":1}"#, "tools[1].type", TYPE),
        (r#"{"type":""}"#, "tools[1].type", VALUE),
        (r#"{"type":"function"}"#, "tools[1].name", MISSING),
        (r#"{"type":"function","function":{"name":"chat_style"}}"#, "tools[1].name", MISSING),
        (r#"{"type":"function","name":7}"#, "tools[1].name", TYPE),
        (r#"{"type":"function","name":""}"#, "tools[1].name", VALUE),
        (r#"{"type":"function","name":"get weather"}"#, "tools[1].name", VALUE),
        (r#"{"type":"function","name":"wetter_für_alle"}"#, "tools[1].name", VALUE),
        (r#"{"type":"function","name":"first"}"#, "tools[1].name", VALUE),
        (r#"{"type":"custom","name":"first"}"#, "tools[1].name", VALUE),
        (r#"{"type":"function","name":"a","description":["x"]}"#, "tools[1].description", TYPE),
        (r#"{"type":"function","name":"a","parameters":"{}"}"#, "tools[1].parameters", TYPE),
        (r#"{"type":"function","name":"a","parameters":true}"#, "tools[1].parameters", TYPE),
        (r#"{"type":"function","name":"a","strict":"yes"}"#, "tools[1].strict", TYPE),
        (r#"{"type":"custom"}"#, "tools[1].name", MISSING),
        (r#"{"type":"namespace","tools":[]}"#, "tools[1].name", MISSING),
        (r#"{"type":"namespace","name":"n"}"#, "tools[1].tools", MISSING),
        (r#"{"type":"namespace","name":"n","tools":{}}"#, "tools[1].tools", TYPE),
        (r#"{"type":"namespace","name":"n","tools":[7]}"#, "tools[1].tools[0]", TYPE),
        (r#"{"type":"namespace","name":"n","tools":[{"type":"function"}]}"#, "tools[1].tools[0].name", MISSING),
        (
            r#"{"type":"namespace","name":"n","tools":[{"type":"function","name":"a"},{"type":"function","name":"a"}]}"#,
            "tools[1].tools[1].name",
            VALUE,
        ),
        (r#"{"type":"mcp"}"#, "tools[1].server_label", MISSING),
        (r#"{"type":"mcp","server_label":{}}"#, "tools[1].server_label", TYPE),
        (r#"{"type":"mcp","server_label":"a"},{"type":"mcp","server_label":"a"}"#, "tools[2].server_label", VALUE),
    ];
    check(with_tool, &rows);
    check(with_field, &[(r#""tools":{}"#, "tools", TYPE), (r#""tools":"all""#, "tools", TYPE)]);
}

#[test]
fn tool_servers() {
    let rows = [
        (r#""server_url":7"#, "tools[1].server_url", TYPE),
        (r#""server_url":"file:///etc/passwd""#, "tools[1].server_url", VALUE),
        (r#""server_url":"https://""#, "tools[1].server_url", VALUE),
        (r#""server_url":"https://a b""#, "tools[1].server_url", VALUE),
        (r#""headers":["X-Key: 1"]"#, "tools[1].headers", TYPE),
        (r#""headers":{"X-Key":1}"#, "tools[1].headers.X-Key", TYPE),
        (r#""headers":{"X Key":"1"}"#, "tools[1].headers.X Key", VALUE),
        (r#""headers":{"X-Key":"1\r\nHost: evil"}"#, "tools[1].headers.X-Key", VALUE),
        (r#""authorization":{}"#, "tools[1].authorization", TYPE),
        (r#""authorization":"a\nb""#, "tools[1].authorization", VALUE),
        (r#""authorization":"t","headers":{"authorization":"Bearer u"}"#, "tools[1].authorization", VALUE),
        (r#""allowed_tools":"search""#, "tools[1].allowed_tools", TYPE),
        (r#""allowed_tools":[1]"#, "tools[1].allowed_tools[0]", TYPE),
        (r#""allowed_tools":{"tool_names":"search"}"#, "tools[1].allowed_tools.tool_names", TYPE),
        (r#""allowed_tools":{"read_only":"yes"}"#, "tools[1].allowed_tools.read_only", TYPE),
        (r#""require_approval":"perhaps""#, "tools[1].require_approval", VALUE),
        (r#""require_approval":false"#, "tools[1].require_approval", TYPE),
        (r#""require_approval":{"never":{"tool_names":[1]}}"#, "tools[1].require_approval.never.tool_names[0]", TYPE),
    ];
    check(with_server, &rows);
}

#[test]
fn choices() {
    let rows = [
        (r#""any""#, "tool_choice", VALUE),
        (r#""a""#, "tool_choice", VALUE),
        ("true", "tool_choice", TYPE),
        ("[]", "tool_choice", TYPE),
        ("{}", "tool_choice.type", MISSING),
        (r#"{"type":7}"#, "tool_choice.type", TYPE),
        (r#"{"type":"function"}"#, "tool_choice.name", MISSING),
        (r#"{"type":"function","function":{"name":"a"}}"#, "tool_choice.name", MISSING),
        (r#"{"type":"function","name":"b"}"#, "tool_choice", VALUE),
        (r#"{"type":"function","name":"twice"}"#, "tool_choice", VALUE),
        (r#"{"type":"function","name":"twice","namespace":"p"}"#, "tool_choice", VALUE),
        (r#"{"type":"function","name":"a","namespace":"n"}"#, "tool_choice", VALUE),
        (r#"{"type":"mcp"}"#, "tool_choice.server_label", MISSING),
        (r#"{"type":"mcp","server_label":"other"}"#, "tool_choice", VALUE),
        (r#"{"type":"mcp","server_label":"docs","name":1}"#, "tool_choice.name", TYPE),
        (r#"{"type":"custom","name":"a"}"#, "tool_choice", VALUE),
        (r#"{"type":"allowed_tools"}"#, "tool_choice.tools", MISSING),
        (r#"{"type":"allowed_tools","tools":[]}"#, "tool_choice.tools", VALUE),
        (r#"{"type":"allowed_tools","tools":["a"]}"#, "tool_choice.tools[0]", TYPE),
        (r#"{"type":"allowed_tools","tools":[{"name":"a"}]}"#, "tool_choice.tools[0].type", MISSING),
        (r#"{"type":"allowed_tools","tools":[{"type":"function","name":"z"}]}"#, "tool_choice.tools[0]", VALUE),
        (r#"{"type":"allowed_tools","mode":"maybe","tools":[{"type":"function","name":"a"}]}"#, "tool_choice.mode", VALUE),
        (r#""auto","allowed_tools":"a""#, "allowed_tools", TYPE),
        (r#""auto","allowed_tools":[{"name":"a"}]"#, "allowed_tools[0]", TYPE),
        (r#""auto","allowed_tools":[""]"#, "allowed_tools[0]", VALUE),
        (r#"{"type":"allowed_tools","tools":[{"type":"function","name":"a"}]},"allowed_tools":["a"]"#, "allowed_tools", VALUE),
    ];
    check(with_choice, &rows);
    // The request has no tools to choose from.
    check(with_field, &[(r#""tool_choice":{"type":"function","name":"a"}"#, "tool_choice", VALUE)]);
}
