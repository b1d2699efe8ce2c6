"""The client of a Mastra server."""

from __future__ import annotations

from nbmastra.client.agent import RemoteAgent
from nbmastra.client.client import MastraClient
from nbmastra.client.info import AgentInfo, AgentList
from nbmastra.client.request import Request

__all__ = ["AgentInfo", "AgentList", "MastraClient", "RemoteAgent", "Request"]
