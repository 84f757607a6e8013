"""A function of the client's: the model calls it, the client answers, the model goes on."""

import json

from openai import OpenAI
from weather import TOOL

client = OpenAI()
calls, statuses = [], []
response = client.responses.create(model="offline", input="How is the weather in Oslo?", tools=[TOOL])
statuses.append(response.status)
while asked := [item for item in response.output if item.type == "function_call"]:
    outputs = []
    for call in asked:
        arguments = json.loads(call.arguments)
        calls.append([call.name, arguments])
        outputs.append({"type": "function_call_output", "call_id": call.call_id, "output": f"sunny in {arguments['city']}"})
    earlier = response.id
    response = client.responses.create(model="offline", previous_response_id=earlier, input=outputs, tools=[TOOL])
    statuses.append(response.status)
print(json.dumps({
    "calls": calls,
    "statuses": statuses,
    "text": response.output_text,
    "chained": response.previous_response_id == earlier,
}))
