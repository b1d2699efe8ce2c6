"""What a server tells of its workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, overload

from nbmastra.client.refusals import clean
from nbmastra.fold.reading import as_dict, as_text, schema_of

__all__ = ["WorkflowInfo", "WorkflowList"]


@dataclass(frozen=True)
class WorkflowInfo:
    """A workflow as its server describes it. `steps` are ids; schemas are JSON schemas; `raw` is all it told."""

    id: str
    name: str = ""
    description: str = ""
    steps: tuple[str, ...] = ()
    input_schema: dict[str, Any] | None = field(default=None, repr=False)
    output_schema: dict[str, Any] | None = field(default=None, repr=False)
    raw: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    @classmethod
    def of(cls, workflow_id: str, raw: Mapping[str, Any]) -> WorkflowInfo:
        """From an answer of `GET /workflows` or `GET /workflows/{id}`. Source: client-js `GetWorkflowResponse`."""
        return cls(
            id=workflow_id,
            name=as_text(raw.get("name")),
            description=as_text(raw.get("description")),
            steps=tuple(as_dict(raw.get("steps"))),
            input_schema=_schema(raw.get("inputSchema")),
            output_schema=_schema(raw.get("outputSchema")),
            raw=dict(raw),
        )

    def resume_schema(self, step: str) -> dict[str, Any] | None:
        """JSON schema of the data that a step waits for when it is suspended; None if the server tells none."""
        return _schema(as_dict(as_dict(self.raw.get("steps")).get(step)).get("resumeSchema"))

    def __repr__(self) -> str:
        facts = [f"steps: {', '.join(self.steps)}" if self.steps else "", self.description]
        return clean(f"<Workflow {self.id} {'; '.join(filter(None, facts))}".rstrip(), 300) + ">"


class WorkflowList(Sequence[WorkflowInfo]):
    """The workflows of a server, by position or by id."""

    def __init__(self, workflows: Sequence[WorkflowInfo]) -> None:
        self._workflows = list(workflows)

    @property
    def ids(self) -> list[str]:
        """The ids, as `client.workflow(id)` takes them."""
        return [workflow.id for workflow in self._workflows]

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> WorkflowInfo: ...
    @overload
    def __getitem__(self, key: slice) -> list[WorkflowInfo]: ...
    def __getitem__(self, key: SupportsIndex | str | slice) -> WorkflowInfo | list[WorkflowInfo]:
        if isinstance(key, str):
            for workflow in self._workflows:
                if workflow.id == key:
                    return workflow
            raise KeyError(key)
        return self._workflows[key]

    def __len__(self) -> int:
        return len(self._workflows)

    def __contains__(self, key: object) -> bool:
        return key in self.ids if isinstance(key, str) else key in self._workflows

    def _ipython_key_completions_(self) -> list[str]:
        return self.ids

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._workflows)) or "no workflows"


def _schema(value: object) -> dict[str, Any] | None:
    # Servers write schemas as superjson: {"json": {…}} as text.
    schema = schema_of(value)
    inner = as_dict((schema or {}).get("json"))
    return inner or schema
