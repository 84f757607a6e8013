"""The same loop with the streaming helper, and with the whole history sent again instead of a link to it."""

import json

from openai import OpenAI
from weather import TOOL

client = OpenAI()
history = [{"role": "user", "content": "How is the weather in Oslo?"}]
deltas, arguments, laps = [], [], 0
while True:
    laps += 1
    with client.responses.stream(model="offline", input=history, tools=[TOOL], store=False) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                deltas.append(event.delta)
        final = stream.get_final_response()
    asked = [item for item in final.output if item.type == "function_call"]
    if not asked:
        break
    arguments += [call.arguments for call in asked]
    history += final.output
    history += [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny in Oslo"} for call in asked]
print(json.dumps({
    "deltas": "".join(deltas),
    "arguments": arguments,
    "laps": laps,
    "status": final.status,
    "text": final.output_text,
}))
