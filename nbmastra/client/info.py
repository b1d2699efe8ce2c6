"""What a server tells of its agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, cast, overload

from nbmastra.client.refusals import clean

__all__ = ["AgentInfo", "AgentList"]


@dataclass(frozen=True)
class AgentInfo:
    """An agent as its server describes it. `tools` are names; `raw` is all that the server told."""

    id: str
    name: str = ""
    description: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    instructions: str = ""
    raw: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    @classmethod
    def of(cls, agent_id: str, raw: Mapping[str, Any]) -> AgentInfo:
        """From an answer of `GET /agents` or `GET /agents/{id}`. Source: client-js `GetAgentResponse`."""
        provider, model = _text(raw.get("provider")), _text(raw.get("modelId"))
        return cls(
            id=agent_id,
            name=_text(raw.get("name")),
            description=_text(raw.get("description")),
            model=f"{provider}/{model}" if provider and model else model or provider,
            tools=_names(raw.get("tools")),
            agents=_names(raw.get("agents")),
            instructions=_text(raw.get("instructions")),
            raw=dict(raw),
        )

    def __repr__(self) -> str:
        facts = [self.model]
        if self.tools:
            facts.append(f"tools: {', '.join(self.tools)}")
        if self.agents:
            facts.append(f"agents: {', '.join(self.agents)}")
        if self.description not in ("", self.id):
            facts.append(self.description)
        return clean(f"<Agent {self.id} {'; '.join(filter(None, facts))}".rstrip(), 300) + ">"


class AgentList(Sequence[AgentInfo]):
    """The agents of a server, by position or by id: `agents[0]`, `agents["weather"]`, `"weather" in agents`."""

    def __init__(self, agents: Sequence[AgentInfo]) -> None:
        self._agents = list(agents)

    @property
    def ids(self) -> list[str]:
        """The ids, as `client.agent(id)` takes them."""
        return [agent.id for agent in self._agents]

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> AgentInfo: ...
    @overload
    def __getitem__(self, key: slice) -> list[AgentInfo]: ...
    def __getitem__(self, key: SupportsIndex | str | slice) -> AgentInfo | list[AgentInfo]:
        if isinstance(key, str):
            for agent in self._agents:
                if agent.id == key:
                    return agent
            raise KeyError(key)
        return self._agents[key]

    def __len__(self) -> int:
        return len(self._agents)

    def __contains__(self, key: object) -> bool:
        return key in self.ids if isinstance(key, str) else key in self._agents

    def _ipython_key_completions_(self) -> list[str]:
        return self.ids

    def __repr__(self) -> str:
        if not self._agents:
            return "no agents"
        rows = [(clean(a.id, 40), clean(a.model, 40), clean(", ".join(a.tools), 60)) for a in self._agents]
        table = [("agent", "model", "tools"), *rows]
        widths = [max(len(row[column]) for row in table) for column in range(2)]
        return "\n".join(f"{a:<{widths[0]}}  {m:<{widths[1]}}  {t}".rstrip() for a, m, t in table)


def _text(value: object) -> str:
    """A text, or the texts of Mastra's message forms of one (`instructions` may be messages)."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _text(cast("dict[str, Any]", value).get("content"))
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, cast("list[object]", value))))
    return ""


def _names(value: object) -> tuple[str, ...]:
    return tuple(cast("dict[str, Any]", value)) if isinstance(value, dict) else ()
