"""The OpenAI Agents SDK: a hosted MCP tool that needs approval, which its callback gives or refuses, in every way that it speaks to a server."""

import asyncio
import json

from agents import Agent, HostedMCPTool, ModelSettings, OpenAIProvider, RunConfig, Runner
from openai import AsyncOpenAI

TOOL = {"type": "mcp", "server_label": "tools", "require_approval": "always"}


async def decide(websocket, streamed, chained, answer):
    asked = []

    def on_approval_request(request):
        asked.append([request.data.server_label, request.data.name, json.loads(request.data.arguments)])
        return answer

    provider = OpenAIProvider(openai_client=AsyncOpenAI(), use_responses=True, use_responses_websocket=websocket)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    tools = [HostedMCPTool(tool_config=TOOL, on_approval_request=on_approval_request)]
    settings = ModelSettings(store=not websocket)
    agent = Agent(name="clerk", model="offline", tools=tools, model_settings=settings)
    given = dict(run_config=config, auto_previous_response_id=chained)
    if streamed:
        result = Runner.run_streamed(agent, "Ask me first", **given)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, "Ask me first", **given)
    await provider.aclose()
    return {"asked": asked, "text": result.final_output}


async def both(**way):
    return {
        "approved": await decide(**way, answer={"approve": True}),
        "rejected": await decide(**way, answer={"approve": False, "reason": "not today"}),
    }


async def main():
    return {
        "plain, chained": await both(websocket=False, streamed=False, chained=True),
        "plain, sent again": await both(websocket=False, streamed=False, chained=False),
        "streamed, chained": await both(websocket=False, streamed=True, chained=True),
        "streamed, sent again": await both(websocket=False, streamed=True, chained=False),
        "socket, chained": await both(websocket=True, streamed=True, chained=True),
    }


print(json.dumps(asyncio.run(main())))
