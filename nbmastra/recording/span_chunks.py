"""Spans of a run as the chunks that its stream had, each with its time, as far as a trace knows them.

A trace keeps in one piece what the model wrote piece by piece, and of a tool call when its tool ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbmastra.fold.reading import as_dict, as_list, as_text, is_chunk_like
from nbmastra.fold.state import MAX_DEPTH
from nbmastra.recording.spans import TOOLS, Carried, RunSpans, Span, carried_of, gather, moment
from nbmastra.usage import Usage, parse_usage, sum_usage

__all__ = ["Timed", "run_chunks"]

Timed = tuple[float, dict[str, Any]]
"""When a chunk came, in seconds since 1970, and the chunk as on the wire."""

_WIRE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "reasoningTokens": "reasoning_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "cacheCreationInputTokens": "cache_creation_input_tokens",
}


def run_chunks(spans: RunSpans, carried: Carried | None = None, depth: int = 0) -> list[Timed]:
    """The chunks of a run in their order; `carried`: of the part before it."""
    writer = _Writer(spans, depth)
    if spans.run.type == "workflow_run":
        _write_workflow(writer)
    else:
        _AgentRun(writer, carried).write()
    return sorted(writer.timed, key=lambda timed: timed[0])


class _Writer:
    """Chunks of one run as they are found; sorted by time later, so in order where times are the same."""

    def __init__(self, spans: RunSpans, depth: int) -> None:
        self.spans = spans
        self.depth = depth
        self.run = spans.run
        self.run_id = spans.run.run_id or spans.run.id
        self.origin = "WORKFLOW" if spans.run.type == "workflow_run" else "AGENT"
        self.timed: list[Timed] = []

    def add(self, at: float, kind: str, payload: Mapping[str, Any], *, origin: str | None = None, **top: Any) -> None:
        """A chunk."""
        head = {"type": kind, "runId": self.run_id, "from": origin or self.origin}
        self.timed.append((at, {**head, "payload": dict(payload), **top}))

    def add_inside(self, holder: Span, kind: str, about: Mapping[str, Any]) -> None:
        """The chunks of the runs that hang under a call or workflow step, each carried by one of this run."""
        if self.depth < MAX_DEPTH:
            for inner, under in self.spans.inside:
                if under is holder:
                    for at, chunk in run_chunks(gather(inner), depth=self.depth + 1):
                        self.add(at, kind, {"output": chunk, **about}, origin="USER")


# --- agents ----------------------------------------------------------------------------------------------------------


class _AgentRun:
    """Writes the chunks of an agent's run."""

    def __init__(self, writer: _Writer, carried: Carried | None) -> None:
        spans = writer.spans
        self.spans, self.run, self.add, self.writer = spans, writer.run, writer.add, writer
        left = carried_of(spans)
        self.carried = carried
        self.left = left.step if left is not None else None  # its end belongs to the next part
        self.generations = spans.of("model_generation")
        self.steps = spans.of("model_step") or self.generations  # older servers have no spans of steps
        later = left.calls if left is not None else []
        self.calls = [call for call in spans.of(*TOOLS) if call not in later]
        self.pieces: dict[str, list[Span]] = {}
        for piece in spans.of("model_chunk"):
            self.pieces.setdefault(self.step_of(piece), []).append(piece)
        self.announced: dict[tuple[str, str], str] = {}
        """Names of the tools that were called, by step and call id."""
        self.told: set[tuple[str, str]] = set()
        """Calls whose result was written."""
        self.tasks: dict[str, tuple[str, float]] = {}
        """Background tasks by call id: their own id, and when the model was told of them."""
        self.asked: set[str] = set()

    def step_of(self, span: Span) -> str:
        """Id of the step that a span is under, "" if it is under none."""
        ids = {step.id for step in self.steps}
        at: Span | None = span
        while at is not None and at is not self.run:
            if at.id in ids:
                return at.id
            at = at.parent
        return ""

    def write(self) -> None:
        """All of them."""
        steps = self.steps
        if self.run.resumed:
            steps = self._opening()
        else:
            first = steps[0] if steps else None
            message_id = first.attributes.get("messageId") if first else None
            self.add(
                first.start if first else self.run.start, "start", {"id": self.run.entity, "messageId": message_id}
            )
        for step in steps:
            self._step(step)
        for call in self.calls:
            self._call(call)
        self._ending()

    def _opening(self) -> list[Span]:
        """What an answer led to before the model was asked again: the step that had waited ends. Gives the rest."""
        steps, carried = self.steps, self.carried
        answer = as_dict(self.run.raw.get("input"))
        denied = answer.get("approved") is False
        if carried is not None:
            asked = carried.asked
            if asked and as_text(asked.get("toolCallId")) not in map(_call_id, (*carried.calls, *self.calls)):
                self._denied(asked | answer)  # it never ran; a durable run doesn't tell why
            self._go_on(carried.calls, carried.step)
            return steps
        before = steps[0].start if steps else self.run.end or self.run.start
        calls = [call for call in self.calls if not self.step_of(call) and call.start <= before]
        if steps and calls:
            self._pieces(steps[0])
            self._go_on(calls, steps[0])
            self.calls = [call for call in self.calls if call not in calls]
            return steps[1:]
        if denied:
            self._denied(answer)
            self._lost_step()
        return steps

    def _go_on(self, calls: list[Span], step: Span | None) -> None:
        """The calls that were answered run, and then their step ends, which spans may say otherwise."""
        for call in calls:
            self._call(call)
        if step is not None:
            self._end_step(step, at=max([step.end or 0, self.run.start, *(call.end or 0 for call in calls)]))

    def _denied(self, answer: Mapping[str, Any]) -> None:
        """A refused call, of which no span tells."""
        about = {"toolCallId": as_text(answer.get("toolCallId")), "toolName": as_text(answer.get("toolName"))}
        calls = [
            as_dict(call) for generation in self.generations for call in as_list(generation.output.get("toolCalls"))
        ]
        args = next((call.get("args") for call in calls if call.get("toolCallId") == about["toolCallId"]), None)
        approval = {"id": about["toolCallId"], "approved": False, "reason": answer.get("reason")}
        payload = about | {"approval": approval} | ({} if args is None else {"args": args})
        self.add(self._began, "tool-output-denied", payload)

    def _lost_step(self) -> None:
        """The step that made the refused call has no span after the answer; the total still tells its tokens."""
        missing = self._total().minus(sum_usage(map(_usage, self.steps)))
        if missing.nonzero:
            result = {"reason": "tool-calls", "isContinued": True}
            finish = {"stepResult": result, "metadata": _model(self.generations[:1]), "output": _output(missing)}
            self.add(self._began, "step-finish", finish)

    @property
    def _began(self) -> float:
        return self.generations[0].start if self.generations else self.run.start

    # --- steps ---

    def _step(self, step: Span) -> None:
        warnings = as_list(step.attributes.get("warnings"))
        self.add(step.start, "step-start", {"messageId": step.attributes.get("messageId")})
        self._pieces(step)
        if step is self.steps[-1]:
            self._extras(step)
        model = self._model_of(step)["modelId"]
        if model is not None:
            self.add(step.start, "response-metadata", {"modelId": model})  # also of a step that never ends
        if step is not self.left:
            self._end_step(step, warnings)

    def _end_step(self, step: Span, warnings: Iterable[Any] = (), at: float | None = None) -> None:
        inference = _inference(step)
        reason = _first_text("finishReason", step, inference)
        if step.end is None or reason in ("", "suspended", "aborted"):
            return
        result = {"reason": reason, "isContinued": step.attributes.get("isContinued"), "warnings": list(warnings)}
        finish = {
            "messageId": step.attributes.get("messageId"),
            "stepResult": result,
            "metadata": self._model_of(step),
            "output": _output(_usage(step)),
        }
        self.add(step.end if at is None else at, "step-finish", finish)

    def _model_of(self, step: Span) -> dict[str, Any]:
        """The model, as the step names it, or else the whole run."""
        inference = _inference(step)
        return _model([step, *([inference] if inference else []), *self.generations])

    def _pieces(self, step: Span) -> None:
        """What the model wrote in a step: text, thoughts, calls."""
        pieces = self.pieces.get(step.id, [])
        texts = any(as_text(piece.output.get("text")) for piece in pieces if _kind(piece) == "text")
        text = as_text(step.output.get("text"))
        if not text and len(self.steps) == 1:
            text = next((found for span in self.generations if (found := as_text(span.output.get("text")))), "")
        first = moment(_first("completionStartTime", _inference(step), step, *self.generations[: len(self.steps) == 1]))
        writing = _Writing(self.add, step, first)
        for piece in pieces:
            kind = _kind(piece)
            if kind in ("text", "reasoning"):
                if kind == "text" and not texts:
                    writing.write(piece, kind, text)
                    text = ""
                else:
                    writing.write(piece, kind, as_text(piece.output.get("text")))
            elif kind != "object":
                writing.close()
                self._piece(step, piece, kind)
        if not pieces and text:
            writing.write(step, "text", text)
        writing.close()
        if not pieces:
            ends = step.end if step.end is not None else step.start
            for call in map(as_dict, as_list(step.output.get("toolCalls"))):
                at = min((span.start for span in self.calls if _call_id(span) == call.get("toolCallId")), default=ends)
                self._announce(step.id, at, call)

    def _piece(self, step: Span, piece: Span, kind: str) -> None:
        told = piece.output
        if kind == "tool-call":
            self._written_call(step, piece)
        elif kind == "tool-call-approval" and told:
            self.asked.add(as_text(told.get("toolCallId")))
            self.add(piece.start, kind, told)
        elif kind == "tool-result":
            mastra = as_dict(as_dict(piece.metadata.get("providerMetadata")).get("mastra"))
            task_id = as_text(as_dict(mastra.get("backgroundTask")).get("taskId"))
            if task_id:
                self.tasks[as_text(piece.metadata.get("toolCallId"))] = task_id, piece.start
        elif kind in ("source", "file") and told:
            self.add(piece.start, kind, told)

    def _written_call(self, step: Span, piece: Span) -> None:
        id, name = as_text(piece.output.get("toolCallId")), as_text(piece.output.get("toolName"))
        about = {"toolCallId": id, "toolName": name}
        self.add(piece.start, "tool-call-input-streaming-start", about)
        if piece.end is None:
            return
        end = piece.end if step.end is None else min(piece.end, step.end)
        args = piece.output.get("toolInput")
        if isinstance(args, str):  # what the model wrote is no JSON
            self.add(end, "tool-call-delta", {**about, "argsTextDelta": args})
            args = None
        if args is None:
            calls = [as_dict(call) for call in as_list(step.output.get("toolCalls")) if as_dict(call).get("args")]
            spans = [call.raw.get("input") for call in self.calls if _call_id(call) == id]
            args = next((call["args"] for call in calls if call.get("toolCallId") == id), spans[0] if spans else None)
        self.add(end, "tool-call-input-streaming-end", about)
        self._announce(step.id, end, {**about, "args": args})

    def _announce(self, step_id: str, at: float, call: Mapping[str, Any]) -> None:
        id, name = as_text(call.get("toolCallId")), as_text(call.get("toolName"))
        self.announced[step_id, id] = name
        self.add(at, "tool-call", {"toolCallId": id, "toolName": name, "args": call.get("args")})

    def _extras(self, step: Span) -> None:
        """Sources and files, which a trace keeps without their time, and the object."""
        at = step.end if step.end is not None else step.start
        for generation in self.generations:
            for extra in (*as_list(generation.output.get("sources")), *as_list(generation.output.get("files"))):
                if is_chunk_like(extra):
                    self.add(at, as_text(extra.get("type")), as_dict(extra.get("payload")))
        found = next((span.output["object"] for span in (step, *self.generations) if "object" in span.output), None)
        if found is not None:
            self.add(at, "object-result", {}, object=found)

    # --- calls ---

    def _call(self, call: Span) -> None:
        step_id, name = self.step_of(call), call.entity
        id = self._id_of(call, step_id, name)
        about: dict[str, Any] = {"toolCallId": id, "toolName": name}
        args = as_dict(call.raw.get("input"))
        if not any(known == id and step_id in ("", step) for step, known in self.announced):
            self._announce(step_id, call.start, {**about, "args": args})
        self.told.add((step_id, id))
        task = self.tasks.get(id)
        if task is not None:
            self._background(task, about, args, call)
        if call.type == "provider_tool_call":
            about["providerExecuted"] = True
        self.writer.add_inside(call, "tool-output", about)
        waits = self.spans.suspended and id == as_text(self.run.output.get("toolCallId"))
        if call.end is None or (waits and "success" not in call.attributes):
            return
        error = call.raw.get("error")
        if error is not None:
            self.add(call.end, "tool-error", {**about, "error": error})
        else:
            self.add(call.end, "tool-result", {**about, "result": call.raw.get("output")})
        if task is not None:
            ended = {"result": call.raw.get("output")} if error is None else {"error": error}
            kind = "background-task-completed" if error is None else "background-task-failed"
            self.add(call.end, kind, {"taskId": task[0], **about, **ended})

    def _id_of(self, call: Span, step_id: str, name: str) -> str:
        """The call's id; where a span doesn't tell it, that of the first such call of the step without a result."""
        open_calls = (key for key, tool in self.announced.items() if tool == name and key not in self.told)
        return _call_id(call) or next((id for step, id in open_calls if step_id in ("", step)), call.id)

    def _background(self, task: tuple[str, float], about: dict[str, Any], args: Any, call: Span) -> None:
        task_id, told_at = task
        named = {"taskId": task_id, **about}
        began = min(told_at, call.start)
        self.add(began, "background-task-started", named)
        more = {"agentId": self.run.entity, "runId": self.writer.run_id, "args": args}
        self.add(call.start, "background-task-running", {**named, **more})
        note = {"mastra": {"backgroundTask": {"taskId": task_id, "status": "running"}}}
        self.add(began, "tool-result", {**about, "result": None, "providerMetadata": note})

    # --- the end ---

    def _total(self) -> Usage:
        return sum_usage(_usage(generation) for generation in self.generations)

    def _ending(self) -> None:
        run, tripped = self.run, False
        for span in self.spans.of("processor_run"):
            abort = as_dict(span.attributes.get("tripwireAbort"))
            if abort:
                tripped = True
                self.add(
                    span.end if span.end is not None else span.start, "tripwire", abort | {"processorId": span.entity}
                )
        if run.end is None:
            return
        reason = _first_text("finishReason", *reversed(self.generations))
        status = run.output.get("status")
        error = run.raw.get("error")
        if error is not None:
            self.add(run.end, "error", {"error": error})
        if self.spans.suspended or reason == "suspended":
            self._question()
        elif status == "aborted" or reason == "aborted":
            self.add(run.end, "abort", {})
        else:
            reason = reason or ("tripwire" if tripped else "stop" if error is None else "error")
            result = {"reason": reason, "isContinued": False}
            self.add(run.end, "finish", {"stepResult": result, "output": _output(self._total())})

    def _question(self) -> None:
        output, end = self.run.output, self.run.end
        id = as_text(output.get("toolCallId"))
        if id and id not in self.asked and end is not None:
            approval = "approval" in as_text(output.get("reason"))
            kind = "tool-call-approval" if approval else "tool-call-suspended"
            self.add(end, kind, {"toolCallId": id, "toolName": as_text(output.get("toolName"))})


class _Writing:
    """Text and thoughts of a step: pieces of a kind that follow each other are one part."""

    def __init__(self, add: Any, step: Span, first: float | None) -> None:
        self._add = add
        self._step = step
        self._first = first
        """When the model's first token came; that isn't when a part began."""
        self._kind = ""
        self._parts = 0
        self._end: float | None = None

    @property
    def _id(self) -> str:
        return f"{self._step.id}-{self._parts}"

    def write(self, piece: Span, kind: str, text: str) -> None:
        """A piece of text, whole; with its start and its end if nothing of its kind stands before or behind it."""
        if kind != self._kind:
            self.close()
            self._kind = kind
            self._parts += 1
            self._add(piece.start, f"{kind}-start", {"id": self._id})
        limits = [end for end in (piece.end, self._step.end) if end is not None]
        if text:
            at = piece.start
            if self._first is not None:
                at = min(max(at, self._first), *limits) if limits else max(at, self._first)
                self._first = None
            self._add(at, f"{kind}-delta", {"id": self._id, "text": text})
        self._end = min(limits) if piece.end is not None else None

    def close(self) -> None:
        """The open part is over, unless its span isn't."""
        if self._kind and self._end is not None:
            self._add(self._end, f"{self._kind}-end", {"id": self._id})
        self._kind = ""


def _kind(piece: Span) -> str:
    return as_text(piece.attributes.get("chunkType"))


def _call_id(call: Span) -> str:
    return as_text(call.attributes.get("toolCallId")) or as_text(call.metadata.get("toolCallId"))


def _inference(step: Span) -> Span | None:
    return next((child for child in step.children if child.type == "model_inference"), None)


def _first(name: str, *spans: Span | None) -> Any:
    """An attribute of the first span that has it."""
    return next((found for span in spans if span and (found := span.attributes.get(name)) is not None), None)


def _first_text(name: str, *spans: Span | None) -> str:
    return as_text(_first(name, *spans))


def _model(spans: Sequence[Span]) -> dict[str, Any]:
    """The model, as the first of the spans names it that does."""
    told = [span.attributes for span in spans]
    known = [as_dict(span.metadata.get("modelMetadata")) for span in spans]

    def named(places: list[dict[str, Any]], key: str) -> list[str]:
        return [name for place in places if (name := as_text(place.get(key)))]

    names = [*named(told, "responseModel"), *named(known, "modelId"), *named(told, "model"), None]
    providers = [*named(known, "modelProvider"), *named(told, "provider"), None]
    return {"modelId": names[0], "modelMetadata": {"modelProvider": providers[0]}}


def _usage(span: Span) -> Usage:
    """The tokens of a step or generation. A step's inference tells the same again: it is asked if the step has none."""
    for source in (span, _inference(span)):
        wire = as_dict(source.attributes.get("usage")) if source is not None else {}
        input, output = as_dict(wire.get("inputDetails")), as_dict(wire.get("outputDetails"))
        details = {
            "reasoningTokens": output.get("reasoning"),
            "cachedInputTokens": input.get("cacheRead"),
            "cacheCreationInputTokens": input.get("cacheWrite"),
        }
        usage = parse_usage({**wire, **{key: value for key, value in details.items() if value is not None}})
        if usage.reported:
            return usage
    return Usage()


def _output(usage: Usage) -> dict[str, Any]:
    known = usage.to_dict()
    return {"usage": {wire: known[name] for wire, name in _WIRE.items() if name in known}}


# --- workflows -------------------------------------------------------------------------------------------------------


def _write_workflow(writer: _Writer) -> None:
    """A workflow's run: its steps, with the agents that ran in them, whose tokens are their own."""
    run, add = writer.run, writer.add
    add(run.start, "workflow-start", {"workflowId": run.entity})
    for step in writer.spans.of("workflow_step"):
        about = {"stepName": step.entity, "id": step.entity}
        add(step.start, "workflow-step-start", {**about, "payload": step.raw.get("input"), "status": "running"})
        writer.add_inside(step, "workflow-step-output", about)
        if step.end is None:
            continue
        error = step.raw.get("error")
        status = "failed" if error is not None else as_text(step.attributes.get("status")) or "success"
        if status == "suspended":
            add(step.end, "workflow-step-suspended", about)
            continue
        result = {"status": status, "output": step.raw.get("output")} | ({} if error is None else {"error": error})
        add(step.end, "workflow-step-result", about | result)
    if run.end is not None:
        error = run.raw.get("error")
        status = "failed" if error is not None else as_text(run.attributes.get("status")) or "success"
        metadata = {} if error is None else {"error": error}
        finish = {"workflowStatus": status, "metadata": metadata, "finalWorkflowResult": run.raw.get("output")}
        add(run.end, "workflow-finish", finish)
