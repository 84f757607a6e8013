"""What Schemathesis cannot know: names of things that are there. Half of what it makes up is led to them, so that more is reached
than refusals; the other half is sent as it is."""

import hashlib
import json

import schemathesis

AGENT, TOOL, MODEL = "alice", "echo", "offline"


def is_led(value):
    """Whether this one is led: the same every time."""
    return hashlib.sha256(repr(value).encode()).digest()[0] % 2 == 0


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    known = {"agent": AGENT, "tool": TOOL, "name": MODEL}
    if not path_parameters:
        return path_parameters
    return {key: known[key] if key in known and is_led(value) else value for key, value in path_parameters.items()}


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    # A claim waits as long as the request says, and no call is ever made.
    if isinstance(body.get("wait_s"), int) and body["wait_s"] > 1:
        body = {**body, "wait_s": 1}
    # An action calls a configured tool.
    if "action_id" in body and isinstance(body.get("tool"), str) and is_led(body["tool"]):
        body = {**body, "tool": TOOL}
    operation = context.operation.definition.raw.get("operationId") if context.operation else None
    if operation in ("createResponse", "enqueue") and is_led(json.dumps(body, default=str, sort_keys=True)):
        body = {**body, "model": MODEL}
        for key in ("conversation", "previous_response_id", "tool_choice", "context_box_id", "tools", "windlass"):
            if is_led((key, str(body.get(key)))):
                body.pop(key, None)
        if "input" not in body and operation == "createResponse":
            body["input"] = "hello"
    return body
