"""A conversation: begun, gone on with by responses, listed, changed and forgotten; and what a request would cost."""

import json

from openai import NotFoundError, OpenAI

from weather import TOOL

client = OpenAI()
begun = client.conversations.create(metadata={"topic": "weather"}, items=[{"type": "message", "role": "user", "content": "Hello"}])
described = client.conversations.update(begun.id, metadata={"topic": "rain"})
asked = client.responses.create(model="offline", input="How is the weather?", tools=[TOOL], conversation=begun.id)
call = next(item for item in asked.output if item.type == "function_call")
answer = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
with client.responses.stream(model="offline", input=[answer], tools=[TOOL], conversation=begun.id) as stream:
    told = stream.get_final_response()
added = client.conversations.items.create(begun.id, items=[{"type": "message", "role": "user", "content": "Thanks"}])
# Two items per page, so that the SDK has to fetch further pages.
items = list(client.conversations.items.list(begun.id, limit=2, order="asc"))
found = client.conversations.items.retrieve(items[0].id, conversation_id=begun.id)
client.conversations.items.delete(items[0].id, conversation_id=begun.id)
left = list(client.conversations.items.list(begun.id))
counted = client.responses.input_tokens.count(model="offline", input="How much is that?", conversation=begun.id)
kept = client.conversations.retrieve(begun.id)
deleted = client.conversations.delete(begun.id)
try:
    client.conversations.retrieve(begun.id)
    gone = None
except NotFoundError as error:
    gone = error.status_code
print(json.dumps({
    "metadata": [begun.metadata, described.metadata, kept.metadata],
    "echo": told.conversation.id == begun.id,
    "text": told.output_text,
    "added": len(added.data),
    "types": [item.type for item in items],
    "found": found.to_dict() == items[0].to_dict(),
    "left": len(left),
    "counted": [counted.object, counted.input_tokens > 0],
    "deleted": [deleted.object, deleted.deleted],
    "gone": gone,
}))
