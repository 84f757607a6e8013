"""A response nobody wants any more. The model would take a minute."""

import json

from openai import OpenAI

client = OpenAI()
response = client.responses.create(model="offline", input="Take your time", background=True)
cancelled = client.responses.cancel(response.id)
print(json.dumps({
    "first": response.status,
    "cancelled": cancelled.status,
    "again": client.responses.cancel(response.id).status,
    "kept": client.responses.retrieve(response.id).status,
}))
