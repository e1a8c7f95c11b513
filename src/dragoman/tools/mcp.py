"""`McpServer`: the tools of a Model Context Protocol server as tools here. Needs the extra `mcp`.

async with McpServer.stdio("mcp-server-time") as server:
    agent = Agent(model, tools=[*server.tools])
"""

import importlib.util
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypedDict, Unpack

from ..errors import ErrorCode, InvalidValue, MissingExtra, ToolError, forget_arguments
from .asking import Asking
from .definition import Approval, Execute, ToolDefinition, ToolOutput
from .mcp_asking import Allowed
from .mcp_endpoints import Endpoint, HttpEndpoint, StdioEndpoint
from .mcp_listing import Listing, ToolPolicy, as_names, read_listing
from .mcp_results import read_result
from .toolcontext import ToolContext

if TYPE_CHECKING:
    from .mcp_connection import Interrupted, Keeper, Session

__all__ = ["McpServer"]

_LONGEST_INSTRUCTIONS = 20_000  # characters

OnToolsChanged: TypeAlias = Callable[["McpServer"], object]


class _Options(TypedDict, total=False):
    """What may be said of any server."""

    name: str
    prefix: str
    include: Iterable[str]
    exclude: Iterable[str]
    requires_approval: Approval
    timeout_ms: int | None
    connect_timeout_ms: int
    allow_elicitation: bool
    allow_sampling: bool
    on_tools_changed: OnToolsChanged | None


class McpServer:
    """An MCP server and its tools, open for as long as its `async with` block.

    `prefix` is put before the names of its tools; `include` and `exclude` name tools as the server does.
    `requires_approval` and `timeout_ms` count for every tool. `connect_timeout_ms` is how long the server may take to
    be ready. `on_tools_changed(server)` is called in the event loop when it has other tools than before.

    With `allow_elicitation` the server may ask a person something while a call is under way, with `allow_sampling` the
    agent's model. Both are refused otherwise. Tools of a server over stdio that may ask run one at a time in an agent.

    If the server ends, the next call starts it again. Use it in the event loop that opened it, from any task.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        name: str = "",
        prefix: str = "",
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        requires_approval: Approval = False,
        timeout_ms: int | None = None,
        connect_timeout_ms: int = 30_000,
        allow_elicitation: bool = False,
        allow_sampling: bool = False,
        on_tools_changed: OnToolsChanged | None = None,
    ) -> None:
        if importlib.util.find_spec("mcp") is None:
            raise MissingExtra("McpServer", "mcp")
        if type(connect_timeout_ms) is not int or connect_timeout_ms < 1:
            raise InvalidValue.of("connect_timeout_ms", connect_timeout_ms, "a whole number of milliseconds from 1 up")
        if not isinstance(name, str):
            raise InvalidValue.of("name", name, "text")
        if not isinstance(prefix, str):
            raise InvalidValue.of("prefix", prefix, "text")
        for option, value in (("allow_elicitation", allow_elicitation), ("allow_sampling", allow_sampling)):
            if type(value) is not bool:
                raise InvalidValue.of(option, value, "true or false")
        self._allowed = Allowed(elicitation=allow_elicitation, sampling=allow_sampling)
        self._endpoint = endpoint
        self._name = name or endpoint.name
        self._policy = ToolPolicy(
            prefix=prefix,
            include=None if include is None else as_names("include", include),
            exclude=as_names("exclude", exclude),
            requires_approval=requires_approval,
            timeout_ms=timeout_ms,
            # An older server over stdio does not say for which call it asks: so there is only one.
            concurrency=f"mcp {self._name}" if any(self._allowed) and endpoint.ends_with_its_connection else "",
        )
        self._connect_timeout = connect_timeout_ms / 1_000
        self._on_tools_changed = on_tools_changed
        self._listing: Listing | None = None
        self._remarks: tuple[str, ...] = ()
        self._instructions: str | None = None
        self._keeper: Keeper | None = None

    @classmethod
    @forget_arguments
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stderr: TextIO | None = None,
        **options: Unpack[_Options],
    ) -> "McpServer":
        """Return a server that is started as a process of its own.

        Of our environment the process gets only what a program needs to start (PATH, HOME, LANG and the like), and
        what `env` says: no keys. Its stderr is not shown, unless it is given a file.
        """
        return cls(StdioEndpoint(command, args, env=env, cwd=cwd, stderr=stderr), **options)

    @classmethod
    @forget_arguments
    def http(cls, url: str, headers: Mapping[str, str] | None = None, **options: Unpack[_Options]) -> "McpServer":
        """Return a server that is reached over streamable HTTP; `headers` go with every request, and nowhere else."""
        return cls(HttpEndpoint(url, headers), **options)

    def __repr__(self) -> str:
        return f"McpServer({self._name!r})"

    @property
    def name(self) -> str:
        """What errors call the server: the given name, else that of its program or host."""
        return self._name

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that the server has now. An agent keeps those that it was made with."""
        return self._known().tools

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the server's list of tools: those that were left out, and why."""
        return self._known().problems + self._remarks

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words, which are not trusted."""
        return self._instructions

    async def __aenter__(self) -> "McpServer":
        from .mcp_connection import Keeper

        if self._keeper is not None:
            raise InvalidValue(f"MCP server {self._name!r} is open already")
        self._keeper = Keeper(
            self._endpoint,
            name=self._name,
            connect_timeout=self._connect_timeout,
            allowed=self._allowed,
            on_listing=self._take,
        )
        try:
            session = await self._keeper.session()
        except BaseException:
            await self._close()
            raise
        self._instructions = (session.instructions or "")[:_LONGEST_INSTRUCTIONS] or None
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self._close()

    async def _close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.close()

    def _known(self) -> Listing:
        if self._listing is None:
            raise InvalidValue(f"MCP server {self._name!r} has not been opened: use `async with`")
        return self._listing

    def _take(self, tools: list[object] | None, remark: str) -> None:
        """Take in a list of tools, or the reason why there is no newer one."""
        self._remarks = (remark,) if remark else ()
        if tools is None:
            return
        before = self._listing
        self._listing = read_listing(tools, self._policy, self._make_execute)
        if before is None or self._on_tools_changed is None or _specs(before) == _specs(self._listing):
            return
        try:
            self._on_tools_changed(self)
        except Exception:
            logging.getLogger("dragoman").exception("on_tools_changed of %r failed", self)

    def _make_execute(self, tool: str, idempotent: bool) -> Execute:
        async def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolOutput:
            return await self._call(tool, arguments, context.asking, idempotent=idempotent)

        # Where two servers have a tool of one name, the error says which servers they are.
        execute.__module__, execute.__qualname__ = f"MCP server {self._name!r}", tool
        return execute

    async def _call(
        self, tool: str, arguments: dict[str, Any], asking: Asking | None, *, idempotent: bool
    ) -> ToolOutput:
        """Make a call. Repeat it if the server surely did not run it, or if the tool is idempotent."""
        from .mcp_connection import Interrupted

        unsure: Interrupted | None = None
        for is_last in (False, True):
            try:
                session = await self._session(tool)
            except ToolError:
                if unsure is None:
                    raise
                raise self._unanswered(tool, unsure) from None
            try:
                return read_result(await session.call(tool, arguments, asking), self._endpoint.secrets.hide)
            except Interrupted as end:
                unsure = end if end.was_run else unsure
                if is_last or (end.was_run and not idempotent):
                    raise self._unanswered(tool, unsure or end) from None
        raise AssertionError("unreachable")

    async def _session(self, tool: str) -> "Session":
        if self._keeper is None:
            raise ToolError(f"{tool}: MCP server {self._name!r} is closed", code=ErrorCode.TOOL_FAILED)
        return await self._keeper.session()

    def _unanswered(self, tool: str, end: "Interrupted") -> ToolError:
        return ToolError(f"{tool}: MCP server {self._name!r} {end}", provider_message=end.last_words or None)


def _specs(listing: Listing) -> list[object]:
    return [tool.spec for tool in listing.tools]
