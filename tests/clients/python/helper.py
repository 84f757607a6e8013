"""A streamed answer with the SDK's helper, which checks each event against those before it."""

import json

from openai import OpenAI

deltas, snapshots = [], []
with OpenAI().responses.stream(model="offline", input="Tell me a story") as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            deltas.append(event.delta)
            snapshots.append(event.snapshot)
    final = stream.get_final_response()
print(json.dumps({
    "deltas": "".join(deltas),
    "snapshot": snapshots[-1],
    "status": final.status,
    "text": final.output_text,
}))
