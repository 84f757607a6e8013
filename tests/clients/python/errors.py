"""Requests that are refused, and what the SDK makes of that."""

import json

import openai

client = openai.OpenAI()


def refusal(ask):
    try:
        ask()
    except openai.APIStatusError as error:
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "type": error.type,
            "code": error.code,
            "param": error.param,
            "says": bool(error.body["message"]),
        }
    return None


create = client.responses.create
stranger = openai.OpenAI(api_key="nobody's")
print(json.dumps({
    "temperature": refusal(lambda: create(model="offline", input="hi", temperature=9)),
    "streamed": refusal(lambda: create(model="offline", input="hi", temperature=9, stream=True)),
    "model": refusal(lambda: create(model="no such model", input="hi")),
    "previous": refusal(lambda: create(model="offline", input="hi", previous_response_id="resp_unknown")),
    "unknown": refusal(lambda: client.responses.retrieve("resp_unknown")),
    "stranger": refusal(lambda: stranger.responses.create(model="offline", input="hi")),
}))
