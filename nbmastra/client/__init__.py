"""The client of a Mastra server."""

from __future__ import annotations

from nbmastra.client.agent import RemoteAgent
from nbmastra.client.background import BackgroundTasks, TaskPage, TaskRecord
from nbmastra.client.budgets import Bounds
from nbmastra.client.client import MastraClient
from nbmastra.client.history import Page, RemoteThread
from nbmastra.client.info import AgentInfo, AgentList
from nbmastra.client.request import Request
from nbmastra.client.run_history import History
from nbmastra.client.suspended import SuspendedCall, SuspendedRun, SuspendedRuns
from nbmastra.client.workflow import RemoteWorkflow
from nbmastra.client.workflow_info import WorkflowInfo, WorkflowList

__all__ = [
    "AgentInfo",
    "AgentList",
    "BackgroundTasks",
    "Bounds",
    "History",
    "MastraClient",
    "Page",
    "RemoteAgent",
    "RemoteThread",
    "RemoteWorkflow",
    "Request",
    "SuspendedCall",
    "SuspendedRun",
    "SuspendedRuns",
    "TaskPage",
    "TaskRecord",
    "WorkflowInfo",
    "WorkflowList",
]
