"""Scenarios on the real server, asked as any program would: HTTP bodies as the scenario file has them."""

from __future__ import annotations

from typing import Any

import httpx2

from nbmastra.client.decode import ChunkDecoder

Wire = dict[str, Any]


def play(url: str, scenario: dict[str, Any]) -> list[list[Wire]]:
    """The chunks of each of the scenario's steps."""
    agent = f"{url}/api/agents/cf-{scenario['id']}-main"
    streams: list[list[Wire]] = []
    run_id = ""
    with httpx2.Client(timeout=60) as http:
        for step in scenario["steps"]:
            if "ask" in step:
                body = {"messages": step["ask"], **step.get("options", {})}
                streams.append(_stream(http, agent, "stream", body, stop=step.get("stop", False)))
            elif "approve" in step:
                body = {"runId": run_id, "toolCallId": step["approve"]}
                streams.append(_stream(http, agent, "approve-tool-call", body))
            elif "decline" in step:
                body = {"runId": run_id, "toolCallId": step["decline"]}
                streams.append(_stream(http, agent, "decline-tool-call", body))
            else:
                body = {"runId": run_id, "toolCallId": step["resume"], "resumeData": step["data"]}
                streams.append(_stream(http, agent, "resume-stream", body))
            run_id = next((chunk["runId"] for chunk in streams[-1] if chunk.get("runId")), run_id)
    return streams


def _stream(http: httpx2.Client, agent: str, route: str, body: Wire, *, stop: bool = False) -> list[Wire]:
    decoder = ChunkDecoder()
    chunks: list[Wire] = []
    with http.stream("POST", f"{agent}/{route}", json=body) as response:
        if response.status_code != 200:
            raise AssertionError(f"{route}: {response.status_code} {response.read().decode()}")
        for data in response.iter_raw():
            chunks += [chunk.to_wire() for chunk in decoder.feed(data)]
            if stop and len(chunks) > 30:
                stop = False
                memory = body["memory"]
                where = {"threadId": memory["thread"], "resourceId": memory["resource"]}
                httpx2.post(f"{agent}/threads/abort", json=where).raise_for_status()
    assert decoder.done, "the server's stream has no end mark"
    return chunks
