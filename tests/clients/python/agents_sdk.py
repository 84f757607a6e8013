"""The OpenAI Agents SDK: an agent with two functions and a conversation of two turns, in every way it speaks to a server."""

import asyncio
import json

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, SQLiteSession, function_tool
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from travel import TURNS, find_hotel, get_weather, taken


async def converse(websocket, streamed, chained):
    provider = OpenAIProvider(openai_client=AsyncOpenAI(), use_responses=True, use_responses_websocket=websocket)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    # A follow-up of a response that is not stored is only possible over a socket.
    settings = ModelSettings(store=not websocket)
    tools = [function_tool(get_weather), function_tool(find_hotel)]
    agent = Agent(name="clerk", model="fake", instructions="Be brief.", tools=tools, model_settings=settings)
    # Without chaining, the session sends its whole history.
    session = None if chained else SQLiteSession("travel")
    previous, texts, deltas, tokens = None, [], "", 0
    for turn in TURNS:
        given = dict(run_config=config, session=session, previous_response_id=previous, auto_previous_response_id=chained)
        if streamed:
            result = Runner.run_streamed(agent, turn, **given)
            async for event in result.stream_events():
                if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                    deltas += event.data.delta
        else:
            result = await Runner.run(agent, turn, **given)
        texts.append(result.final_output)
        tokens += result.context_wrapper.usage.total_tokens
        if chained:
            previous = result.last_response_id
    await provider.aclose()
    return {"texts": texts, "ran": taken(), "deltas": deltas if streamed else "".join(texts), "tokens": tokens}


async def main():
    return {
        "plain, chained": await converse(websocket=False, streamed=False, chained=True),
        "plain, sent again": await converse(websocket=False, streamed=False, chained=False),
        "streamed, chained": await converse(websocket=False, streamed=True, chained=True),
        "streamed, sent again": await converse(websocket=False, streamed=True, chained=False),
        "socket, chained": await converse(websocket=True, streamed=True, chained=True),
    }


print(json.dumps(asyncio.run(main())))
