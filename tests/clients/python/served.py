"""A tool that the server runs, alone and in one lap with a function of the client's; plain and with the streaming helper."""

import json

from openai import OpenAI
from openai.types.responses.response_output_item import McpCall, McpListTools
from weather import TOOL

client = OpenAI()
TOOLS = [{"type": "mcp", "server_label": "tools", "require_approval": "never"}, TOOL]
TYPES = {"mcp_list_tools": McpListTools, "mcp_call": McpCall}


def plain(**asked):
    return client.responses.create(model="offline", tools=TOOLS, **asked)


def helper(**asked):
    with client.responses.stream(model="offline", tools=TOOLS, **asked) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def seen(response):
    of_the_server = [item for item in response.output if item.type in TYPES]
    assert all(isinstance(item, TYPES[item.type]) for item in of_the_server), response.output
    calls = [item for item in response.output if item.type == "mcp_call"]
    return {
        "status": response.status,
        "items": [item.type for item in response.output],
        "offers": [tool.name for item in response.output if item.type == "mcp_list_tools" for tool in item.tools][:2],
        "calls": [[call.server_label, call.name, json.loads(call.arguments), call.output, call.error, call.status] for call in calls],
        "text": response.output_text,
    }


saw = {}
for way in [plain, helper]:
    alone = way(input="Have it echoed")
    mixed = way(input="Both at once")
    asked = [item for item in mixed.output if item.type == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny in Oslo"} for call in asked]
    saw[way.__name__] = [seen(alone), seen(mixed), seen(way(previous_response_id=mixed.id, input=outputs))]
print(json.dumps(saw))
