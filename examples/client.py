"""Streams an answer, and continues after the last event whenever the connection breaks: python3 client.py MODEL INPUT"""
import os, sys, time
from openai import APIConnectionError, OpenAI
from httpx import HTTPError

client = OpenAI(base_url="http://127.0.0.1:7600/v1", api_key=os.environ["WINDLASS_TOKEN"])
stream = client.responses.create(model=sys.argv[1], input=sys.argv[2], stream=True)
response = last = ended = None
while not ended:
    try:
        for event in stream:
            last = event.sequence_number
            if event.type == "response.created":
                response = event.response.id
            elif event.type == "response.output_item.done" and event.item.type == "mcp_call":
                print(f"[{event.item.name} gave {event.item.output or event.item.error}]")
            elif event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
            elif event.type in ("response.completed", "response.incomplete", "response.failed"):
                ended = event.response
    except (APIConnectionError, HTTPError):
        pass
    if not ended:  # the server was stopped or killed: the run continues when it is back
        time.sleep(1)
        try:
            stream = client.responses.retrieve(response, stream=True, starting_after=last)
        except APIConnectionError:
            stream = []
print(f"\n[{ended.status}]")
