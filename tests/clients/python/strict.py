"""Everything checked against the SDK's own types, which it does not do by itself."""

import json

from openai import OpenAI
from weather import TOOL

client = OpenAI(_strict_response_validation=True)
answer = client.responses.create(model="offline", input="Good day")
call = client.responses.create(model="offline", input="How is the weather in Oslo?", tools=[TOOL])
events = list(client.responses.create(model="offline", input="Tell me a story", stream=True))
calling = list(client.responses.create(model="offline", input="How is the weather in Oslo?", tools=[TOOL], stream=True))
served = {"model": "offline", "tools": [{"type": "mcp", "server_label": "tools", "require_approval": "never"}, TOOL]}
# The SDK's list of statuses is closed, so a strict client asks for the standard one.
mixed = {**served, "input": "Both at once", "extra_headers": {"Windlass-Status": "standard"}}
serving = list(client.responses.create(**served, input="Have it echoed", stream=True))
mixing = list(client.responses.create(**mixed, stream=True))
served, mixed = client.responses.create(**served, input="Have it echoed"), client.responses.create(**mixed)
print(json.dumps({
    "answer": client.responses.retrieve(answer.id).status,
    "call": client.responses.retrieve(call.id).status,
    "events": [told[-1].type for told in [events, calling, serving, mixing]],
    "served": [served.status, [item.type for item in served.output]],
    "mixed": [mixed.status, [item.type for item in mixed.output]],
    "items": len(client.responses.input_items.list(answer.id).data),
    "models": len(client.models.list().data),
}))
