"""The tables of an output, at any moment of its run; `nbmastra.frames` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from nbmastra.errors import SettingsError
from nbmastra.hooks import hooks

if TYPE_CHECKING:
    import pandas as pd  # only for its types: an output needs no pandas until somebody asks for a table

    from nbmastra.prices import OwnPrices

__all__ = ["FrameMethods"]

Columns = str | Sequence[str] | None


class FrameMethods:
    """Tables of a run: the same columns and dtypes whatever came so far. `columns`: names or groups of columns."""

    def runs_df(self, columns: Columns = None, *, prices: OwnPrices | None = None) -> pd.DataFrame:
        """One row per run: status, prompt, agent, tokens, cost, times."""
        return self._frame("runs_df", columns=columns, prices=prices)

    def chunks_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per chunk; `columns=["main", "raw"]` adds the payload as JSON text."""
        return self._frame("chunks_df", columns=columns)

    def steps_df(self, columns: Columns = None, *, prices: OwnPrices | None = None) -> pd.DataFrame:
        """One row per step: model, times, tokens, cost."""
        return self._frame("steps_df", columns=columns, prices=prices)

    def usage_df(
        self,
        by: Literal["step", "turn", "run", "model", "agent"] = "step",
        columns: Columns = None,
        *,
        prices: OwnPrices | None = None,
    ) -> pd.DataFrame:
        """Tokens and cost by step, turn, run, model or agent; they sum to the run's total, nested runs included."""
        return self._frame("usage_df", by=by, columns=columns, prices=prices)

    def tool_calls_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per tool call: arguments, result, error, times."""
        return self._frame("tool_calls_df", columns=columns)

    def tasks_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per background task: status, result, times."""
        return self._frame("tasks_df", columns=columns)

    def messages_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per message of the conversation, as the server knows it after the last turn that finished."""
        return self._frame("messages_df", columns=columns)

    def sources_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per source that the answer rests on."""
        return self._frame("sources_df", columns=columns)

    def errors_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per thing that went wrong."""
        return self._frame("errors_df", columns=columns)

    def timeline_df(self, columns: Columns = None) -> pd.DataFrame:
        """One row per span of time: turns, steps, reasoning and text, tool calls, inner runs, background tasks."""
        return self._frame("timeline_df", columns=columns)

    def elements_df(self) -> pd.DataFrame:
        """One row per element of a structured array: those complete by now that fit, as `element_stream` gives them.

        Columns and dtypes are the schema's. Raises SettingsError if the run was asked for something that is no array.
        """
        return self._frame("elements_df")

    def timeline_chart(self) -> Any:
        """The run over time, as a `Picture` that stays in the notebook. Raises SettingsError without extra `plot`."""
        return self._frame("timeline_chart")

    def timeline(self) -> Any:
        """The run over time, as it grows: a `Timeline`, to zoom, pan and select in."""
        return self._widget("Timeline")

    def usage_view(self, *, prices: OwnPrices | None = None) -> Any:
        """Tokens by step, speed and cost, as they grow: a `UsageView`."""
        return self._widget("UsageView", prices=prices)

    def _widget(self, name: str, **options: Any) -> Any:
        if hooks.widget is None:
            raise SettingsError("widgets need `import nbmastra`")
        return hooks.widget(name, self, options)

    def _frame(self, name: str, **options: Any) -> pd.DataFrame:
        if hooks.frame is None:
            raise SettingsError("tables need `import nbmastra`")
        return hooks.frame(name, self, options)
