//! Which calls of a tool server the client of a request approves.
//!
//! Like OpenAI, this API asks for approval of calls to servers that a request declares, unless the request says otherwise. The operator
//! vouches for configured servers: their tools run unless the request says otherwise. A declared server's own hints about its tools
//! (`readOnlyHint`) can't remove the need, unless the operator trusts such servers.

use windlass_kernel::{EffectClass, ToolSpec};

use super::request::{Approval, Mcp, ToolFilter};

/// `mcp.default_approval`: whether tools of a declared server need approval if the request does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultApproval {
    /// The client has to approve every call.
    #[default]
    Always,
    /// The operator trusts the servers that requests declare: calls run, and the servers' hints count.
    Never,
}

/// Whether calls of a server's tool need the approval of the client that named the server.
pub(super) fn is_needed(server: &Mcp, tool: &ToolSpec, default: DefaultApproval) -> bool {
    let (is_declared, asks) = (server.url.is_some(), default == DefaultApproval::Always);
    let name = tool.remote.as_ref().map_or(tool.name.as_str(), |remote| remote.name.as_str());
    let trusts_hints = !is_declared || !asks;
    let reads = trusts_hints.then_some(tool.effect == EffectClass::Read);
    match &server.approval {
        None => is_declared && asks,
        Some(Approval::Never) => false,
        Some(Approval::Always) => true,
        Some(Approval::Some { always, never }) => {
            let is_asked = always.as_ref().is_some_and(|filter| may_have(filter, name, reads));
            let is_free = never.as_ref().is_some_and(|filter| has(filter, name, reads));
            // A configured server whose request lists only what to ask about runs the others.
            let asks_about_others = asks && (is_declared || never.is_some());
            is_asked || (asks_about_others && !is_free)
        }
    }
}

/// Whether the filter matches the tool; one without conditions matches none. `reads` is what the server says of the tool; `None` if that
/// does not count.
fn has(filter: &ToolFilter, name: &str, reads: Option<bool>) -> bool {
    (filter.names.is_some() || filter.read_only.is_some())
        && names(filter, name)
        && filter.read_only.is_none_or(|wanted| reads == Some(wanted))
}

/// Whether the filter would match the tool if the server's hints were as it wants them.
fn may_have(filter: &ToolFilter, name: &str, reads: Option<bool>) -> bool {
    names(filter, name) && filter.read_only.is_none_or(|wanted| reads.is_none_or(|reads| reads == wanted))
}

fn names(filter: &ToolFilter, name: &str) -> bool {
    filter.names.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_kernel::{AfterExecution, Remote, Route};

    use super::*;
    use crate::responses::request::{Create, Tool};

    const DECLARED: &str = r#","server_url":"https://x.example/mcp""#;

    fn tool(name: &str, effect: EffectClass) -> ToolSpec {
        ToolSpec {
            name: format!("a__{name}").as_str().into(),
            description: String::new(),
            parameters: json!({}),
            route: Route::InProcess,
            effect,
            after_execution: AfterExecution::Suspend,
            deadline_ms: 1,
            strict: None,
            remote: Some(Remote { server: "a".into(), name: name.into() }),
            untrusted: true,
            agent: None,
            retry: None,
        }
    }

    /// Which of the tools `a`, which reads, and `b`, which writes, need approval.
    fn asked(server: &str, default: DefaultApproval) -> String {
        let body = format!(r#"{{"input":"hi","tools":[{{"type":"mcp","server_label":"a"{server}}}]}}"#);
        let create = Create::read(body.as_bytes()).expect("it can be read");
        let Tool::Mcp(server) = &create.tools[0] else { panic!("a server") };
        let needs = |(name, effect)| is_needed(server, &tool(name, effect), default).then_some(name);
        [("a", EffectClass::Read), ("b", EffectClass::Write)].into_iter().filter_map(needs).collect()
    }

    #[test]
    fn tm_07_a_declared_server_needs_approval_unless_the_request_or_the_operator_says_otherwise() {
        let (always, never) = (DefaultApproval::Always, DefaultApproval::Never);
        for field in ["", r#","require_approval":null"#] {
            let declared = format!("{DECLARED}{field}");
            assert_eq!((asked(&declared, always).as_str(), asked(&declared, never).as_str()), ("ab", ""), "{field}");
            assert_eq!((asked(field, always).as_str(), asked(field, never).as_str()), ("", ""), "a configured server: {field}");
        }
        for server in ["", DECLARED] {
            for default in [always, never] {
                assert_eq!(asked(&format!(r#"{server},"require_approval":"never""#), default), "");
                assert_eq!(asked(&format!(r#"{server},"require_approval":"always""#), default), "ab");
            }
        }
    }

    #[test]
    fn tm_07_filters_choose_tools_and_hints_of_a_declared_server_free_none() {
        // The tools that are asked about: of a declared server, of one that the operator trusts, and of a configured one.
        for (approval, expected) in [
            (r#"{"never":{"tool_names":["a","b","c"]}}"#, ["", "", ""]),
            (r#"{"never":["a"]}"#, ["b", "", "b"]),
            (r#"{"never":{"tool_names":["a","b"]},"always":{"tool_names":["b"]}}"#, ["b", "b", "b"]),
            (r#"{"never":{"tool_names":["a","b"]},"always":{"tool_names":["c"]}}"#, ["", "", ""]),
            (r#"{"always":{"tool_names":["b"]}}"#, ["ab", "b", "b"]),
            (r#"{"always":["a"]}"#, ["ab", "a", "a"]),
            (r#"{"never":{"read_only":true}}"#, ["ab", "", "b"]),
            (r#"{"never":{"tool_names":["a","b"],"read_only":true}}"#, ["ab", "", "b"]),
            (r#"{"never":{"tool_names":["a","b"]},"always":{"read_only":false}}"#, ["ab", "b", "b"]),
            (r#"{"never":{"tool_names":["a","b"]},"always":{"read_only":true}}"#, ["ab", "a", "a"]),
            ("{}", ["ab", "", ""]),
            (r#"{"never":{}}"#, ["ab", "", "ab"]),
        ] {
            let field = format!(r#","require_approval":{approval}"#);
            let declared = format!("{DECLARED}{field}");
            let found = [
                asked(&declared, DefaultApproval::Always),
                asked(&declared, DefaultApproval::Never),
                asked(&field, DefaultApproval::Always),
            ];
            assert_eq!(found, expected, "{approval}");
        }
    }
}
