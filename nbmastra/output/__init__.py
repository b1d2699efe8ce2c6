"""A run as its user sees it."""

from __future__ import annotations

from nbmastra.hooks import hooks
from nbmastra.output.bounds import Bounds, make_limits, price_limits
from nbmastra.output.control import Answer, Control
from nbmastra.output.judging import Verdict, verdict
from nbmastra.output.limits import Limits
from nbmastra.output.model_output import MastraModelOutput
from nbmastra.output.pending import Pending, PendingList
from nbmastra.output.results import FullOutput, Response, Total, run_cost
from nbmastra.output.schema import ObjectSchema
from nbmastra.output.source import Batch, Ended, IterableSource, Source, StreamEnded
from nbmastra.output.streams import Stream

__all__ = [
    "Answer",
    "Batch",
    "Bounds",
    "Control",
    "Ended",
    "FullOutput",
    "IterableSource",
    "Limits",
    "MastraModelOutput",
    "ObjectSchema",
    "Pending",
    "PendingList",
    "Response",
    "Source",
    "Stream",
    "StreamEnded",
    "Total",
    "Verdict",
    "hooks",
    "make_limits",
    "price_limits",
    "run_cost",
    "verdict",
]
