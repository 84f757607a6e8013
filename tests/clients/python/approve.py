"""A tool of the server's that needs approval, approved and rejected: with the streaming helper and without, continuing the response and with
the whole conversation sent again."""

import json

from openai import OpenAI
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall

client = OpenAI()
TOOLS = [{"type": "mcp", "server_label": "tools", "require_approval": "always"}]
INPUT = [{"role": "user", "content": "Ask me first"}]


def plain(**asked):
    return client.responses.create(model="offline", tools=TOOLS, **asked)


def helper(**asked):
    with client.responses.stream(model="offline", tools=TOOLS, **asked) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def decide(way, chained, answer):
    first = way(input=INPUT)
    request = first.output[-1]
    assert isinstance(request, McpApprovalRequest), first.output
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, **answer}
    if chained:
        second = way(previous_response_id=first.id, input=[answer])
    else:
        second = way(input=[*INPUT, *first.output, answer])
    call = next(item for item in second.output if item.type == "mcp_call")
    assert isinstance(call, McpCall), call
    return {
        "asked": [first.status, [item.type for item in first.output], request.server_label, request.name, json.loads(request.arguments)],
        "items": [item.type for item in second.output],
        "of_request": call.approval_request_id == request.id,
        "outcome": [call.output, call.error, call.status],
        "text": second.output_text,
    }


def both(way, chained):
    return {
        "approved": decide(way, chained, {"approve": True}),
        "rejected": decide(way, chained, {"approve": False, "reason": "not today"}),
    }


print(json.dumps({
    "plain, chained": both(plain, True),
    "plain, sent again": both(plain, False),
    "helper, chained": both(helper, True),
    "helper, sent again": both(helper, False),
}))
