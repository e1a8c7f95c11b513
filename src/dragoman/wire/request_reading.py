"""A client's request while it is read: its conversation, its tools and its settings. Knows no wire API.

What cannot be said here is kept and named. A tool that only its own vendor runs is set apart, never refused.
"""

from collections.abc import Collection
from typing import Any

from .._jsontext import require_json_object
from ..errors import UnreadableData
from ..request import CacheConfig, HostedTool, ModelConfig, ModelRequest, ReadRequest, Reasoning
from ..toolspec import OneTool, ToolChoice, ToolSpec
from .drafts import Draft
from .reading import Node, reading, take_json

__all__ = ["CACHE_MARKS", "EFFORTS", "FREE_TEXT", "RequestDraft"]

# The efforts of all APIs, in our words.
EFFORTS: dict[str, str] = {
    "none": "off",
    "off": "off",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
# How clients mark a block up to which the prefix shall be cached: Anthropic's name, and OpenAI's.
CACHE_MARKS = ("cache_control", "prompt_cache_breakpoint")
# A tool of free text is one with this argument; its answers are written as free text again.
FREE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class RequestDraft:
    """Collects what the body of a request says."""

    def __init__(self, body: bytes, form: str) -> None:
        self.root = take_json(body, "request")
        self.root.skip("model", "stream")  # the body must be an object
        self.conversation = Draft(form)
        self.settings: dict[str, Any] = {}
        self.tools: list[ToolSpec] = []
        self.hosted: list[HostedTool] = []
        self.call_fields: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, str] = {}
        self._anchors: set[int] = set()
        self._tool_names: set[str] = set()
        self.has_marks = False

    # ------------------------------------------------------------ settings

    def read_number(self, name: str, setting: str, node: Node | None = None) -> None:
        """Read a number into a setting."""
        child = (node or self.root).child(name)
        if child.value is None:
            return
        if type(child.value) not in (int, float):
            raise child.wrong("a number")
        self.settings[setting] = child.value

    def read_texts(self, name: str, setting: str, node: Node | None = None) -> None:
        """Read a text, or a list of texts, into a setting; empty ones say nothing."""
        child = (node or self.root).child(name)
        if isinstance(child.value, str):
            self.settings[setting] = (child.value,) if child.value else ()
        elif child.value is not None:
            self.settings[setting] = tuple(each.text() for each in child.each() if each.value != "")

    def read_flag(self, name: str, setting: str) -> None:
        """Read true or false into a setting, if it is there."""
        if self.root.has(name):
            self.settings[setting] = self.root.flag_in(name)

    def read_metadata(self, name: str, key: str, node: Node | None = None) -> None:
        """Read a text into the metadata, if it is there."""
        text = (node or self.root).text_if(name)
        if text:
            self.metadata[key] = text

    def think(self, *, effort: str | None = None, budget: int | None = None, summary: bool = False) -> None:
        """Set how much the model thinks, by a word of an API or by a budget; a word that is not known is named."""
        if effort is not None and effort not in EFFORTS:
            self.name_unknown("reasoning", f"the effort {effort[:40]!r} is not known")
            effort = None
        known: Any = EFFORTS[effort] if effort is not None else None
        if known is not None or budget or summary:
            self.settings["reasoning"] = Reasoning(
                effort=None if budget else known, budget_tokens=budget or None, summary=summary
            )

    def shape_output(self, schema: Node) -> None:
        """Set the schema of the answer."""
        if not isinstance(schema.value, dict):
            raise schema.wrong("an object")
        with reading(schema.where):
            require_json_object(schema.whole(), "the schema")
        self.settings["output_schema"] = schema.value

    def name_unknown(self, where: str, what: str) -> None:
        """Warn about a value that is not used."""
        self.conversation.notes.add(f"request.{where}", what)

    # ------------------------------------------------------------ tools

    def add_tool(
        self, node: Node, schema: Node, *, strict: bool | None = None, call_fields: dict[str, Any] | None = None
    ) -> None:
        """Add a tool that the client runs; `call_fields` are the API's own fields of its calls."""
        name = node.name_in("name")
        description = node.text_if("description")
        if name in self._tool_names:
            self.conversation.notes.add(node.where, f"a second tool of the name {name[:40]!r} is left out")
            return
        fields = {} if schema.value is None else {"parameter_schema": schema.whole()}
        with reading(node.where):
            self.tools.append(ToolSpec(name, description or None, strict=strict, **fields))
        self._tool_names.add(name)
        if call_fields:
            self.call_fields[name] = call_fields

    def add_hosted(self, kind: str, options: dict[str, Any], where: str) -> None:
        """Set a tool apart that the API's own vendor runs, or that is of an unknown type."""
        self.conversation.notes.add(where, f"the tool {kind[:60]!r} is left out: only its own vendor knows it")
        with reading(where):
            self.hosted.append(HostedTool(kind, options))

    def choose(self, choice: ToolChoice, where: str = "tool_choice") -> None:
        """Set which tool the model may or must use; one that was left out cannot be chosen."""
        if isinstance(choice, OneTool) and choice.tool_name not in self._tool_names:
            self.name_unknown(where, f"the tool {choice.tool_name[:60]!r} is not among the tools")
        elif choice == "required" and not self.tools:
            self.name_unknown(where, "a call is required, and no tool is left")
        else:
            self.settings["tool_choice"] = choice

    # ------------------------------------------------------------ cache

    def mark(self, node: Node, message: int | None = None) -> None:
        """Note the cache mark that a block may have: it anchors the message with this index, where there is one."""
        for name in CACHE_MARKS:
            if node.has(name):
                node.child(name).whole()
                self.has_marks = True
                if message is not None and message >= 0:
                    self._anchors.add(message)

    # ------------------------------------------------------------ the end

    def finish(
        self,
        *,
        known: Collection[str],
        model: str | None = None,
        stream: bool,
        caches: bool,
        include_usage: bool = True,
        echo: dict[str, Any] | None = None,
    ) -> ReadRequest:
        """Return the request. `known` are the fields that were read; `caches` is whether the API caches by itself."""
        other = {name: value for name, value in self.root.value.items() if name not in known and value is not None}
        imported = self.conversation.result(self.root)
        cache = CacheConfig() if caches or self.has_marks else None
        if not (model or self.root.text_if("model")):
            raise UnreadableData("request.model must not be empty")
        with reading("request"):
            config = ModelConfig(model or self.root.text_in("model"), cache_config=cache, **self.settings)
        request = ModelRequest(
            config=config,
            messages=imported.messages,
            tools=tuple(self.tools),
            system=imported.system,
            cache_anchors=tuple(sorted(self._anchors)),
            metadata=self.metadata,
            stream=stream,
        )
        return ReadRequest(
            request=request,
            hosted_tools=tuple(self.hosted),
            other_fields=other,
            warnings=imported.warnings,
            call_fields=self.call_fields,
            include_usage=include_usage,
            echo=echo or {},
        )
