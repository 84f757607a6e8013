"""An MCP server over standard input and output, without dependencies: one message of JSON-RPC per line."""
import json, sys

ROOMS = {"Fjord": 4, "Harbour": 8, "Summit": 20}
TOOL = {
    "name": "find_rooms",
    "description": "Lists the rooms that have enough seats.",
    "inputSchema": {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]},
    "annotations": {"readOnlyHint": True},  # the engine may repeat the call after a crash
}


def answer(method, params):
    if method == "initialize":
        server = {"name": "rooms", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call" and params["name"] == TOOL["name"]:
        found = [room for room, seats in ROOMS.items() if seats >= params["arguments"]["seats"]]
        return {"content": [{"type": "text", "text": ", ".join(found)}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:  # a message without an id is a notification, which has no answer
        result = answer(message["method"], message.get("params", {}))
        outcome = {"error": {"code": -32601, "message": "no such method or tool"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | outcome), flush=True)
