"""A stream that breaks because the server dies, read on from the event after the last one seen."""

import json

from openai import APIConnectionError, OpenAI

# The server comes back within a second or two: the SDK retries until then.
client = OpenAI(max_retries=8)
numbers, text, response_id, broken = [], "", None, None


def read(stream):
    global text, response_id
    for event in stream:
        numbers.append(event.sequence_number)
        if event.type == "response.created":
            response_id = event.response.id
        elif event.type == "response.output_text.delta":
            text += event.delta
            # The test kills the server when it sees the third of these.
            print(json.dumps({"seen": event.sequence_number}), flush=True)
        elif event.type == "response.completed":
            return event.response
    return None


try:
    final = read(client.responses.create(model="offline", input="Tell me an endless story", stream=True))
except APIConnectionError as error:
    broken = type(error).__name__
    seen = len(numbers)
    final = read(client.responses.retrieve(response_id, stream=True, starting_after=numbers[-1]))
print(json.dumps({
    "broken": broken,
    "seen_before": seen if broken else None,
    "numbers": numbers,
    "same": final.id == response_id,
    "status": final.status,
    "deltas": text,
    "text": final.output_text,
}))
