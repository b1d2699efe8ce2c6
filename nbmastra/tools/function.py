"""A function as a tool."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from nbmastra.errors import SettingsError
from nbmastra.tools.base import Background, RequireApproval, Tool, check_name
from nbmastra.tools.context import ToolContext
from nbmastra.tools.docstrings import describe
from nbmastra.tools.running import run_call
from nbmastra.tools.signature import Signature

__all__ = ["FunctionTool"]

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Tool, Generic[P, R]):
    """A function that a model may call, and that can still be called as the function.

    Sync functions run in a thread of their own, async ones on the loop of the run. Raises SettingsError for a function
    that no model could call.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        require_approval: RequireApproval = False,
        background: Background = None,
        strict: bool | None = None,
    ) -> None:
        if not callable(function) or isinstance(function, type):
            raise SettingsError(f"a tool is a function, not {_kind(function)}")
        plain = _plain(function)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise SettingsError(
                f"{_own_name(function)} is a generator: return a list, or write with ToolContext.writer as you go"
            )
        self.function = function
        self.name = check_name(name if name is not None else _own_name(function))
        own, self._said = describe(plain.__doc__)
        self.description = own if description is None else description
        self.require_approval = require_approval
        self.background = background
        self.strict = strict
        self._is_async = inspect.iscoroutinefunction(plain)
        self._signature: Signature | None = None
        self.__doc__ = plain.__doc__
        self.__wrapped__ = function
        if not _is_method_in_class(function):
            self.signature  # what is wrong with it is said at once  # noqa: B018

    @property
    def signature(self) -> Signature:
        """What the function takes. Raises SettingsError."""
        if self._signature is None:
            self._signature = Signature(self.name, self.function, self._said, strict=bool(self.strict))
        return self._signature

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, from signature and docstring."""
        return self.signature.schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them, models made of dicts. Raises ToolInputError."""
        return self.signature.check(arguments)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the function; gives JSON. Raises what it raises, ToolSuspended, ToolResultError."""
        args, kwargs = self.signature.bind(arguments, context)
        function: Callable[..., Any] = self.function
        return await run_call(lambda: function(*args, **kwargs), context, threaded=not self._is_async)

    def with_name(self, name: str) -> FunctionTool[P, R]:
        """The same under another name."""
        return FunctionTool(
            self.function,
            name=name,
            description=self.description,
            require_approval=self.require_approval,
            background=self.background,
            strict=self.strict,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Of a tool that is a method: the tool of the bound method."""
        getter = getattr(self.function, "__get__", None)
        if instance is None or getter is None:
            return self
        return FunctionTool[..., Any](
            getter(instance, owner),
            name=self.name,
            description=self.description,
            require_approval=self.require_approval,
            background=self.background,
            strict=self.strict,
        )


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function beneath partials and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        method: Any = type(function).__call__
        return method
    return inspect.unwrap(function)


def _own_name(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _is_method_in_class(function: Callable[..., Any]) -> bool:
    if inspect.ismethod(function) or not inspect.isfunction(function):
        return False
    return "." in function.__qualname__.rpartition("<locals>.")[2]


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
