"""A streamed answer, event by event."""

import json

from openai import OpenAI

events = list(OpenAI().responses.create(model="offline", input="Tell me a story", stream=True))
print(json.dumps({
    "types": [event.type for event in events],
    "numbers": [event.sequence_number for event in events],
    "deltas": "".join(event.delta for event in events if event.type == "response.output_text.delta"),
    "whole": [event.text for event in events if event.type == "response.output_text.done"],
    "status": events[-1].response.status,
    "text": events[-1].response.output_text,
    "ids": sorted({event.response.id for event in events if hasattr(event, "response")}),
}))
