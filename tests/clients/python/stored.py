"""What is kept of a response, and that deleting it deletes it."""

import json

from openai import NotFoundError, OpenAI

client = OpenAI()
first = client.responses.create(model="offline", input="Good day")
parts = [{"role": "user", "content": words} for words in ("one", "two", "three")]
second = client.responses.create(model="offline", input=parts)
kept = client.responses.retrieve(second.id)
# One item per page, so that the SDK has to fetch further pages.
items = list(client.responses.input_items.list(second.id, limit=1, order="asc"))
client.responses.delete(second.id)
try:
    client.responses.retrieve(second.id)
    gone = None
except NotFoundError as error:
    gone = error.status_code
print(json.dumps({
    "equal": kept.to_dict() == second.to_dict(),
    "words": [part.text for item in items for part in item.content],
    "ids": len({item.id for item in items}),
    "gone": gone,
    "first": client.responses.retrieve(first.id).output_text,
    "models": [model.id for model in client.models.list()],
}))
