"""The same with the streaming helper, of a response in the background."""

import json

from openai import APIConnectionError, OpenAI

client = OpenAI(max_retries=8)
text, last, response_id, broken = "", None, None, None


def read(stream):
    global text, last, response_id
    for event in stream:
        last = event.sequence_number
        if event.type == "response.created":
            response_id = event.response.id
        elif event.type == "response.output_text.delta":
            text += event.delta
            print(json.dumps({"seen": last}), flush=True)
    return stream.get_final_response()


try:
    with client.responses.stream(model="offline", input="Tell me an endless story", background=True) as stream:
        final = read(stream)
except APIConnectionError as error:
    broken = type(error).__name__
    with client.responses.stream(response_id=response_id, starting_after=last) as stream:
        final = read(stream)
print(json.dumps({
    "broken": broken,
    "same": final.id == response_id,
    "status": final.status,
    "deltas": text,
    "text": final.output_text,
}))
