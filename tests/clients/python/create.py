"""One plain question."""

import json

from openai import OpenAI

response = OpenAI().responses.create(model="offline", input="Good day", instructions="Be brief.", metadata={"case": "create"})
print(json.dumps({
    "id": response.id,
    "status": response.status,
    "text": response.output_text,
    "items": [item.type for item in response.output],
    "instructions": response.instructions,
    "metadata": response.metadata,
    "tokens": response.usage.total_tokens,
}))
