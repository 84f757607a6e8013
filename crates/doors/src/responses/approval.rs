//! Whether calls of a tool server need the approval of a person.
//!
//! Approvals are not implemented yet, so a request that needs one is refused before any server is contacted: a server's own hints about its
//! tools (`readOnlyHint`) can't remove the need. Like OpenAI, this API asks for approval of calls to servers that a request declares,
//! unless the request says otherwise. The operator vouches for configured servers: their tools run unless the request says otherwise.

use super::{
    error::WireError,
    request::{Approval, Create, Mcp, Tool, ToolFilter},
};

/// `mcp.default_approval`: whether tools of a declared server need approval if the request does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultApproval {
    /// A person has to approve every call.
    #[default]
    Always,
    /// The operator trusts the servers that requests declare: calls run, and the servers' hints count.
    Never,
}

/// Refuses a request if some calls of a tool server would need approval. The error names the position of the server in the request.
pub(super) fn check(create: &Create, default: DefaultApproval) -> Result<(), WireError> {
    let mut servers = create.tools.iter().filter_map(|tool| if let Tool::Mcp(server) = tool { Some(server) } else { None });
    match servers.find(|server| is_needed(server, default)) {
        Some(server) => Err(refusal(server).within(&super::manifest::place_of(create, server))),
        None => Ok(()),
    }
}

fn is_needed(server: &Mcp, default: DefaultApproval) -> bool {
    match &server.approval {
        Some(Approval::Never) => false,
        Some(Approval::Always) => true,
        Some(Approval::Some { always, never }) => {
            let is_asked = |name: &String| {
                let is_default = default == DefaultApproval::Always && !never.as_ref().is_some_and(|never| has(never, name));
                always.as_ref().is_some_and(|always| may_have(always, name)) || is_default
            };
            // Without names, the server decides which tools there are.
            server.allowed.as_ref().and_then(|allowed| allowed.names.as_ref()).is_none_or(|names| names.iter().any(is_asked))
        }
        None => server.url.is_some() && default == DefaultApproval::Always,
    }
}

/// Whether the filter matches the tool without regard to its server's hints.
fn has(filter: &ToolFilter, name: &String) -> bool {
    filter.read_only.is_none() && filter.names.as_ref().is_some_and(|names| names.contains(name))
}

/// Whether the filter may match the tool, depending on its server's hints.
fn may_have(filter: &ToolFilter, name: &String) -> bool {
    filter.names.as_ref().is_none_or(|names| names.contains(name))
}

fn refusal(server: &Mcp) -> WireError {
    match &server.approval {
        None => {
            let message = "Calls of a tool server that a request declares need approval unless the request says otherwise, and approvals are \
                not served yet. Send `\"require_approval\": \"never\"` if its tools may run without approval.";
            WireError::invalid("require_approval", message).with_code("missing_required_parameter")
        }
        Some(Approval::Some { .. }) => {
            let message = "Approvals are not served yet. Send `\"require_approval\": \"never\"`, or name every tool of `allowed_tools` in \
                `require_approval.never.tool_names` and none of them in `require_approval.always`.";
            WireError::invalid("require_approval", message).with_code("unsupported_value")
        }
        Some(Approval::Always | Approval::Never) => {
            let message = "Approvals are not served yet. Send `\"require_approval\": \"never\"` if the tools may run without approval.";
            WireError::invalid("require_approval", message).with_code("unsupported_value")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(server: &str, default: DefaultApproval) -> Result<(), (Option<String>, &'static str)> {
        let body = format!(r#"{{"input":"hi","tools":[{{"type":"web_search"}},{{"type":"mcp","server_label":"a"{server}}}]}}"#);
        let create = Create::read(body.as_bytes()).expect("it can be read");
        check(&create, default).map_err(|error| {
            assert!(error.status() == 400 && error.message().contains(r#""require_approval": "never""#), "{error:?}");
            (error.param().map(str::to_owned), error.code())
        })
    }

    const DECLARED: &str = r#","server_url":"https://x.example/mcp""#;

    #[test]
    fn tm_07_a_declared_server_needs_approval_unless_the_request_or_the_operator_says_otherwise() {
        let at = || Some("tools[1].require_approval".to_owned());
        for field in ["", r#","require_approval":null"#] {
            let declared = format!("{DECLARED}{field}");
            assert_eq!(checked(&declared, DefaultApproval::Always), Err((at(), "missing_required_parameter")), "{field}");
            assert_eq!(checked(&declared, DefaultApproval::Never), Ok(()), "{field}");
            assert_eq!(checked(field, DefaultApproval::Always), Ok(()), "a configured server: {field}");
        }
        for server in ["", DECLARED] {
            for default in [DefaultApproval::Always, DefaultApproval::Never] {
                assert_eq!(checked(&format!(r#"{server},"require_approval":"never""#), default), Ok(()));
                assert_eq!(checked(&format!(r#"{server},"require_approval":"always""#), default), Err((at(), "unsupported_value")));
            }
        }
    }

    #[test]
    fn tm_07_tools_that_need_no_approval_are_named_and_no_hint_counts() {
        let some = |allowed: &str, approval: &str| {
            let server = format!(r#"{DECLARED},{allowed}"require_approval":{approval}"#);
            [DefaultApproval::Always, DefaultApproval::Never].map(|default| checked(&server, default).is_ok())
        };
        let (ab, reads) = (r#""allowed_tools":["a","b"],"#, r#""allowed_tools":{"tool_names":["a"],"read_only":true},"#);
        for (allowed, approval, is_served) in [
            (ab, r#"{"never":{"tool_names":["a","b","c"]}}"#, [true, true]),
            (ab, r#"{"never":["a","b"]}"#, [true, true]),
            (ab, r#"{"never":{"tool_names":["a"]}}"#, [false, true]),
            (ab, r#"{"never":{"tool_names":["a","b"]},"always":{"tool_names":["b"]}}"#, [false, false]),
            (ab, r#"{"never":{"tool_names":["a","b"]},"always":{"tool_names":["c"]}}"#, [true, true]),
            (ab, r#"{"never":{"tool_names":["a","b"]},"always":{"read_only":false}}"#, [false, false]),
            (ab, r#"{"never":{"read_only":true}}"#, [false, true]),
            (ab, r#"{"never":{"tool_names":["a","b"],"read_only":true}}"#, [false, true]),
            (ab, r#"{"always":{"tool_names":["c"]}}"#, [false, true]),
            (ab, "{}", [false, true]),
            ("", r#"{"never":{"tool_names":["a","b"]}}"#, [false, false]),
            (reads, r#"{"never":{"tool_names":["a"]}}"#, [true, true]),
            (reads, r#"{"never":{"read_only":true}}"#, [false, true]),
        ] {
            assert_eq!(some(allowed, approval), is_served, "{allowed} {approval}");
        }
    }
}
