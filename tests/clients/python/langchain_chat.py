"""LangChain's chat model over the Responses API: two functions and a conversation of two turns, streamed and not."""

import json

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from travel import TURNS, find_hotel, get_weather, taken

FUNCTIONS = {function.__name__: function for function in (get_weather, find_hotel)}


def converse(streamed, chained):
    chat = ChatOpenAI(
        model="fake", use_responses_api=True, output_version="responses/v1", use_previous_response_id=chained, stream_usage=True
    ).bind_tools(list(FUNCTIONS.values()))
    history, texts, deltas, tokens = [], [], "", 0
    for turn in TURNS:
        history.append(HumanMessage(turn))
        while True:
            if streamed:
                answer = None
                for piece in chat.stream(history):
                    deltas += piece.text
                    answer = piece if answer is None else answer + piece
            else:
                answer = chat.invoke(history)
            history.append(answer)
            tokens += answer.usage_metadata["total_tokens"]
            if not answer.tool_calls:
                break
            history += [ToolMessage(FUNCTIONS[call["name"]](**call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
        texts.append(answer.text)
    return {"texts": texts, "ran": taken(), "deltas": deltas if streamed else "".join(texts), "tokens": tokens}


print(json.dumps({
    "plain, chained": converse(streamed=False, chained=True),
    "plain, sent again": converse(streamed=False, chained=False),
    "streamed, chained": converse(streamed=True, chained=True),
    "streamed, sent again": converse(streamed=True, chained=False),
}))
