"""Sends a request for each line it reads, with a client at its default settings. If the client gives up, it calls once more, as a
user would, and prints what it got in the end."""

import asyncio
import json
import sys


def openai_sdk(base, streamed):
    from openai import OpenAI

    client = OpenAI(base_url=base)
    if not streamed:
        return client.responses.create(model="agent/clerk", input="go").output_text
    last = None
    for event in client.responses.create(model="agent/clerk", input="go", stream=True):
        last = event
    if last is None or last.type != "response.completed":
        raise RuntimeError(f"the stream ended with {last and last.type}")
    return last.response.output_text


def agents_sdk(base, streamed):
    from agents import Agent, OpenAIProvider, RunConfig, Runner
    from agents.exceptions import MaxTurnsExceeded
    from openai import AsyncOpenAI

    async def run():
        provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=base), use_responses=True)
        config = RunConfig(model_provider=provider, tracing_disabled=True)
        agent = Agent(name="clerk", model="agent/clerk")
        try:
            # A response that waits for a person has no final output; without a limit the SDK would repeat its requests for ever.
            if not streamed:
                return (await Runner.run(agent, "go", run_config=config, max_turns=1)).final_output
            result = Runner.run_streamed(agent, "go", run_config=config, max_turns=1)
            async for _ in result.stream_events():
                pass
            return result.final_output
        except MaxTurnsExceeded:
            return ""

    return asyncio.run(run())


def langchain(base, streamed):
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model="agent/clerk", use_responses_api=True, output_version="responses/v1", base_url=base)
    if not streamed:
        return chat.invoke("go").text
    return "".join(piece.text for piece in chat.stream("go"))


send = {"openai": openai_sdk, "agents": agents_sdk, "langchain": langchain}[sys.argv[1]]
for line in sys.stdin:
    asked = json.loads(line)
    calls, text, errors = 0, None, []
    while text is None and calls < 2:
        calls += 1
        try:
            text = send(asked["base"], asked["streamed"])
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"text": text, "calls": calls, "errors": errors}), flush=True)
