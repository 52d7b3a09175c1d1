"""An agent's loop: a model asks for tools, and they run in a session of secbox.

    PYTHONPATH=clients/python python3 examples/agent.py

The model of this example is a script, so that it runs without one: replace `scripted` by a call of
yours, which gets the messages so far and returns a message with tool calls, or with an answer.
"""

import json
import os
from collections.abc import Iterator

import secbox

# What to tell a model of the tools, in the form that most of them take.
TOOLS = [
    {"name": "python", "description": "Runs a cell of Python. Variables stay for the next one.", "parameters": {"code": "string"}},
    {"name": "shell", "description": "Runs a script of bash in /workspace/work.", "parameters": {"script": "string"}},
    {"name": "write_file", "description": "Writes a file.", "parameters": {"path": "string", "content": "string"}},
]


def scripted(messages: list[dict]) -> dict:
    """A model that knows one task: it reads the last result, repairs its mistake, and answers."""
    step = sum(one["role"] == "assistant" for one in messages)
    calls: list[tuple[str, dict]] = [
        ("write_file", {"path": "/workspace/work/sales.csv", "content": "region,amount\nnorth,17\nsouth,25\n"}),
        ("python", {"code": "import csv\nrows = list(csv.DictReader(open('sales.csv')))\nsum(row['amount'] for row in rows)"}),
        ("python", {"code": "sum(int(row['amount']) for row in rows)"}),
        ("shell", {"script": "wc -l < sales.csv"}),
    ]
    if step < len(calls):
        return {"role": "assistant", "tool": calls[step][0], "arguments": calls[step][1]}
    total = next(one["content"]["value"] for one in reversed(messages) if one["role"] == "tool" and one["content"].get("value"))
    return {"role": "assistant", "answer": f"The sales are {total} in all."}


def use(session: secbox.Session, tool: str, arguments: dict) -> dict:
    """Runs a tool and returns what the model gets: errors too, so that it can repair them."""
    try:
        if tool == "write_file":
            session.files.write(arguments["path"], arguments["content"])
            return {"status": "succeeded"}
        job = secbox.Job(code=arguments["code"], context="main") if tool == "python" else secbox.Job(script=arguments["script"])
        result = session.run(job)
    except secbox.ApiError as refused:
        return {"status": "refused", "detail": refused.detail}
    value = result.results[-1]["data"].get("text/plain", "") if result.results else ""
    return {"status": result.status, "stdout": result.stdout[-4000:], "stderr": result.stderr[-4000:], "value": value, "detail": result.detail}


def agent(client: secbox.Client, task: str) -> Iterator[dict]:
    messages: list[dict] = [{"role": "user", "content": task}]
    with client.start_session(project_id="agent-example", idle_ms=120_000) as session:
        for _ in range(20):  # a model that never answers ends here
            reply = scripted(messages)
            messages.append(reply)
            yield reply
            if "answer" in reply:
                return
            messages.append({"role": "tool", "content": use(session, reply["tool"], reply["arguments"])})
            yield messages[-1]
    raise RuntimeError("the model did not answer within 20 steps")


if __name__ == "__main__":
    with secbox.Client(os.environ.get("SECBOX_SERVER", "http://127.0.0.1:8003"), os.environ.get("SECBOX_TOKEN", "")) as client:
        for message in agent(client, "Add up the sales."):
            print(json.dumps(message))
