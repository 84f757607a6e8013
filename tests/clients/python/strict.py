"""Everything checked against the SDK's own types, which it does not do by itself."""

import json

from openai import OpenAI
from weather import TOOL

client = OpenAI(_strict_response_validation=True)
answer = client.responses.create(model="offline", input="Good day")
call = client.responses.create(model="offline", input="How is the weather in Oslo?", tools=[TOOL])
events = list(client.responses.create(model="offline", input="Tell me a story", stream=True))
calling = list(client.responses.create(model="offline", input="How is the weather in Oslo?", tools=[TOOL], stream=True))
print(json.dumps({
    "answer": client.responses.retrieve(answer.id).status,
    "call": client.responses.retrieve(call.id).status,
    "events": [events[-1].type, calling[-1].type],
    "items": len(client.responses.input_items.list(answer.id).data),
    "models": len(client.models.list().data),
}))
