"""A response that is made while nobody waits for it, asked after until it has ended."""

import json
import time

from openai import OpenAI

client = OpenAI()
response = client.responses.create(model="offline", input="Tell me a long story", background=True)
statuses = [response.status]
while response.status in ("queued", "in_progress"):
    time.sleep(0.1)
    response = client.responses.retrieve(response.id)
    statuses.append(response.status)
print(json.dumps({"statuses": statuses, "background": response.background, "text": response.output_text}))
