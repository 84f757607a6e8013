"""A tool worker whose tool may be repeated: each booking is stored in one transaction with the key of its call. Its calls are short;
for longer ones, docs/tool-worker.md shows how to renew a lease and repeat a request."""
import json, os, sqlite3, urllib.request

URL, TOKEN = "http://127.0.0.1:7600", os.environ["WINDLASS_TOKEN"]
TOOL, WORKER = "book_room", f"worker-{os.getpid()}"


def post(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def book_room(arguments, key):
    with bookings:  # one transaction: a killed worker has made the whole booking, or nothing
        bookings.execute("INSERT OR IGNORE INTO bookings (key, room) VALUES (?, ?)", (key, arguments["room"]))
        (number,) = bookings.execute("SELECT number FROM bookings WHERE key = ?", (key,)).fetchone()
    return {"booking": number, "room": arguments["room"]}


bookings = sqlite3.connect("bookings.db")
bookings.execute("CREATE TABLE IF NOT EXISTS bookings (number INTEGER PRIMARY KEY, key TEXT UNIQUE, room TEXT)")
while True:
    for call in post(f"/v1/tools/{TOOL}/claim", {"worker": WORKER, "max": 10, "lease_s": 30, "wait_s": 20})["calls"]:
        try:
            report = {"status": "success", "result": book_room(call["arguments"], call["idempotency_key"])}
        except Exception as error:
            report = {"status": "failed", "result": str(error)}
        ids = {name: call[name] for name in ("agent_turn_id", "tool_call_id")}
        post(f"/v1/agents/{call['agent_id']}/report", ids | report)
