"""Tools whose arguments a JSON Schema describes, and that something else runs: a server, a sub-agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nbmastra.errors import SettingsError, ToolInputError
from nbmastra.tools.base import Background, RequireApproval, Tool, check_name
from nbmastra.tools.context import ToolContext
from nbmastra.tools.running import run_call

__all__ = ["SchemaTool"]


class SchemaTool(Tool):
    """A tool from its JSON Schema and an async function of (arguments, context). Raises SettingsError."""

    def __init__(
        self,
        name: str,
        description: str,
        parameters: dict[str, Any],
        call: Callable[[dict[str, Any], ToolContext], Awaitable[Any]],
        *,
        require_approval: RequireApproval = False,
        background: Background = None,
    ) -> None:
        self.name = check_name(name)
        self.description = description
        self.require_approval = require_approval
        self.background = background
        self._parameters = parameters
        self._call = call
        self._validator: Any = None

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, as it was given."""
        return self._parameters

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, if they fit the schema. Raises ToolInputError."""
        if self._validator is None:
            self._validator = _validator(self.name, self._parameters)
        try:
            problems = [(tuple(error.absolute_path), error.message) for error in self._validator.iter_errors(arguments)]
        except Exception as error:  # a reference that leads nowhere, a pattern that is none
            problems = [((), f"the tool's schema can't be used ({type(error).__name__})")]
        if problems:
            raise ToolInputError(self.name, problems, arguments=arguments)
        return arguments

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call what runs it; gives JSON. Raises what that raises, ToolSuspended, ToolResultError."""
        return await run_call(lambda: self._call(arguments, context), context, threaded=False)


def _validator(name: str, schema: dict[str, Any]) -> Any:
    # Not at the top: it takes long to import.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]  # it has none

    validator: Any = validator_for(schema, default=Draft202012Validator)
    try:
        validator.check_schema(schema)
    except SchemaError as error:
        raise SettingsError(f"the parameters of {name} are no JSON schema: {error.message[:200]}") from None
    return validator(schema, registry=REGISTRY)  # with a registry of its own, it asks no server
