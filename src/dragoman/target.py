"""What a target can take, as data: the rules that handoff applies and the dialect that a codec speaks.

One dialect per vendor; vendors that speak an existing wire API differ only here. Knows no JSON and no network.
"""

import re
from typing import Literal

import msgspec

from .errors import InvalidValue
from .message import ModelInvocationDescriptor, require_name

__all__ = ["Dialect", "NameRule", "SchemaRules", "TargetRules"]


class NameRule(msgspec.Struct, frozen=True):
    """Which names or ids a target accepts: a pattern for the whole name, and how long a made-up one is.

    `readable` keeps the start of the original in a made-up name; targets with a fixed form cannot.
    """

    pattern: str
    size: int
    readable: bool = True

    def __post_init__(self) -> None:
        re.compile(self.pattern)

    def accepts(self, name: str) -> bool:
        """Whether the target takes `name` as it is."""
        return re.fullmatch(self.pattern, name) is not None


_IDS = NameRule(r"[a-zA-Z0-9_-]{1,64}", 64)


class SchemaRules(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON Schemas that a target's strict mode takes. The default takes all.

    Objects must be closed. A schema that says nothing of a value's form is never taken.
    """

    keywords: frozenset[str] | None = None
    # The values of `format`.
    formats: frozenset[str] = frozenset()
    # Every property of an object must be required.
    all_required: bool = False
    recursive: bool = True
    # Other schemas are taken too, and the model is not held to them.
    takes_others: bool = False


# What a model must be able to do for media of these types. Vendors decide how documents are read: some read them
# for models that cannot.
_MEDIA_ABILITIES = {"image/": "images", "audio/": "audio", "video/": "video"}


class TargetRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a target demands of a conversation. The defaults are what most of them demand."""

    tool_ids: NameRule = _IDS
    tool_names: NameRule = _IDS
    # Whose opaque data (signatures, encrypted reasoning, provider items) may go to this target.
    opaque_providers: frozenset[str] = frozenset()
    opaque_same_model: bool = False
    # Its own earlier thinking may be sent back, and may be the last thing in a turn.
    thinking: bool = True
    final_thinking: bool = True
    # A turn may hold words beside its calls.
    words_beside_calls: bool = True
    # Text of nothing but white space is accepted.
    blank_text: bool = True
    # Order of turns.
    user_first: bool = False
    alternate: bool = False
    prefill: bool = False
    user_after_tool: bool = True
    system_inside: bool = False
    # `tools` must be declared when the history has tool calls.
    tools_for_history: bool = False
    # Media types, or prefixes of them that end in "/": what a user turn, a tool result, an assistant turn may hold.
    user_media: frozenset[str] = frozenset({"image/"})
    result_media: frozenset[str] = frozenset()
    assistant_media: frozenset[str] = frozenset()
    # How media may be given: as `data`, by `url`, by an `s3` address, by the provider's `file_id`.
    media_sources: frozenset[str] = frozenset({"data", "url", "file_id"})
    # The same for single types (as they stand in `user_media` …), where they differ.
    type_sources: dict[str, frozenset[str]] = {}
    # What the model can be held to: the schemas of its answer and of strict tools.
    schemas: SchemaRules = SchemaRules()

    def for_abilities(self, abilities: frozenset[str]) -> "TargetRules":
        """Return the rules of a model that has these abilities: without media that it cannot read."""
        lacking = tuple(prefix for prefix, ability in _MEDIA_ABILITIES.items() if ability not in abilities)
        changed: dict[str, frozenset[str]] = {}
        for name in ("user_media", "result_media", "assistant_media"):
            media: frozenset[str] = getattr(self, name)
            if any(kind.startswith(lacking) for kind in media):
                changed[name] = frozenset(kind for kind in media if not kind.startswith(lacking))
        return msgspec.structs.replace(self, **changed) if changed else self

    def takes_opaque_from(self, origin: ModelInvocationDescriptor | None, specification: str, model: str) -> bool:
        """Whether opaque data of a message that `origin` made may be sent to `model` here."""
        return (
            origin is not None
            and origin.specification == specification
            and origin.provider in self.opaque_providers
            and (not self.opaque_same_model or origin.model == model)
        )


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor of a wire API: its address, its authentication, what it takes. Codecs add fields of their own."""

    provider: str
    specification: str
    # `{region}` and `{project}` are filled in; `global_base_url` is where the region `global` is, if elsewhere.
    base_url: str
    global_base_url: str | None = None
    auth: Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "aws", "token", "none"] = "bearer"
    # The environment variables in which users keep the key, and parts of the address (base_url, region, project).
    key_variables: tuple[str, ...] = ()
    address_variables: dict[str, tuple[str, ...]] = {}
    headers: dict[str, str] = {}
    # A request must say how long the answer may be; the model's own limit is sent where the caller gives none.
    output_limit_required: bool = False
    # Whether it says that an answer ended at `max_tokens`. Where not, one that used them all counts as cut.
    says_cut: bool = True
    # Settings that its API cannot take: they are left out, with a warning.
    ignored: frozenset[str] = frozenset()
    # The server leaves the model's tool calls in its text: tools, calls and results are written as text, in this form,
    # and calls are read from the answer's text. Only the codec of Chat Completions writes them so.
    text_calls: Literal["json", "xml"] | None = None
    # What its models can do where the catalogue does not know a model.
    abilities: frozenset[str] = frozenset({"streaming", "tools"})
    rules: TargetRules = TargetRules()

    def __post_init__(self) -> None:
        require_name("dialect.provider", self.provider)
        require_name("dialect.specification", self.specification)
        if self.text_calls is not None and self.text_calls not in ("json", "xml"):
            raise InvalidValue.of("text_calls", self.text_calls, "json or xml")
