"""What model calls are given beside the conversation, as facts: the tools, and the settings that shape a request.

A tool set is recorded when it changes, once for each model. Tools are named by the digest of their spec, and a spec is
written where its digest is new: a set that stays costs nothing, and one that comes back costs its digests.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec.structs import force_setattr

from .._frozen import frozen
from .._jsontext import encode_json, freeze_object, join_surrogates
from ..errors import REDACTED, InvalidValue, UnreadableData, redact
from ..message import ModelInvocationDescriptor, require_text
from ..toolspec import ToolSpec
from ..usage import require_count
from .entrybase import HistoryEntry, HistoryEntryKind
from .facts import repair_texts

__all__ = ["CallSetup", "ToolSetEntry", "ToolSets", "offered_digest", "set_digest", "tool_digest"]

# What a model is shown of a result where no tool set says otherwise. Records rely on it: it never changes.
RESULT_LIMIT_BYTES = 256_000
DIGEST_SIZE = 32  # hexadecimal digits

_DIGEST = re.compile(rf"[0-9a-f]{{{DIGEST_SIZE}}}")
# An author is no authorization, and OpenAI's prompt_cache_key shapes a request: it says where the cache is looked for.
_SECRET_NAME = re.compile(
    r"auth(?!or)|authori[sz]|(?<!cache)(?<!cache[_-])key$|token$|secret|password|credential|cookie", re.IGNORECASE
)


class ToolSetEntry(HistoryEntry, frozen=True):
    """The tools that one model is offered from here on, and the settings that shape its requests.

    `digests` name the tools in their order; `specs` are those whose digest no entry before this one has given.
    `offered` is the digest of the set that the context offered, where a hook changed it before it was sent. `system` is
    the system text that was sent, where it is not the recorded instruction. `settings` are those of `ModelConfig` that
    are not the defaults, in the layout of its JSON; what looks like a secret is blanked out. `withheld` names what the
    provider has refused and no longer gets. `policy` is that of the context, where it is not `epochs`.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.TOOL_SET
    invocation: ModelInvocationDescriptor
    digests: tuple[str, ...] = ()
    specs: tuple[ToolSpec, ...] = ()
    offered: str = ""
    system: str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    text_calls: str = ""
    withheld: tuple[str, ...] = ()
    result_limit_bytes: int = RESULT_LIMIT_BYTES
    policy: str = ""

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        if not isinstance(self.invocation, ModelInvocationDescriptor):
            raise InvalidValue.of("tool_set.invocation", self.invocation, "a ModelInvocationDescriptor")
        _repair_digests(self, "digests", self.digests)
        require_text("tool_set.offered", self.offered)
        if self.offered:
            _repair_digests(self, "offered", (self.offered,))
        if not isinstance(self.specs, (tuple, list)) or not all(isinstance(spec, ToolSpec) for spec in self.specs):
            raise InvalidValue.of_content("tool_set.specs", self.specs, "a sequence of ToolSpec values")
        force_setattr(self, "specs", tuple(map(_unchangeable, self.specs)))
        if self.system is not None:
            repair_texts(self, "system")
            force_setattr(self, "system", self.system or None)
        repair_texts(self, "text_calls", "policy")
        freeze_object(self, "settings", "tool_set.settings")
        force_setattr(self, "settings", frozen(_without_secrets(self.settings)))
        if not isinstance(self.withheld, (tuple, list)):
            raise InvalidValue.of_content("tool_set.withheld", self.withheld, "a sequence of words")
        for word in self.withheld:
            require_text("tool_set.withheld", word)
        force_setattr(self, "withheld", tuple(map(join_surrogates, self.withheld)))
        require_count("tool_set.resultLimitBytes", self.result_limit_bytes, 1)


class CallSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a model call has beside the messages. The fields mean what those of `ToolSetEntry` mean.

    `offered` are the tools of the context, None where they are the ones that are sent.
    """

    tools: tuple[ToolSpec, ...] = ()
    offered: tuple[ToolSpec, ...] | None = None
    system: str | None = None
    settings: Mapping[str, Any] = {}
    text_calls: str = ""
    withheld: tuple[str, ...] = ()
    result_limit_bytes: int = RESULT_LIMIT_BYTES
    policy: str = ""


class ToolSets:
    """The tool sets of one session, read while it grows: each entry is looked at once."""

    def __init__(self) -> None:
        self._read = 0
        self._specs: dict[str, ToolSpec] = {}  # by their digests
        self._newest: dict[ModelInvocationDescriptor, ToolSetEntry] = {}
        # The setup that was compared last with the newest entry of a model, and is the same.
        self._same: dict[ModelInvocationDescriptor, tuple[ToolSetEntry | None, CallSetup]] = {}

    def extend(self, entries: Sequence[HistoryEntry]) -> None:
        """Read what is new of a session's entries: all of them are given each time."""
        for entry in entries[self._read :]:
            if isinstance(entry, ToolSetEntry):
                self.add(entry)
        self._read = len(entries)

    def add(self, entry: ToolSetEntry) -> None:
        """Take in the next tool set of the session."""
        for spec in entry.specs:
            self._specs.setdefault(tool_digest(spec), spec)
        self._newest[entry.invocation] = entry

    def newest(self, invocation: ModelInvocationDescriptor) -> ToolSetEntry | None:
        """Return the entry that holds for calls to this model; None if there is none yet."""
        return self._newest.get(invocation)

    def tools_of(self, entry: ToolSetEntry) -> tuple[ToolSpec, ...]:
        """Return the tools of an entry that was read; raise UnreadableData if no entry gave one of them."""
        missing = next((digest for digest in entry.digests if digest not in self._specs), None)
        if missing is not None:
            raise UnreadableData(f"tool_set {entry.serial}: no entry before it has the tool {missing}")
        return tuple(self._specs[digest] for digest in entry.digests)

    def setup_for(self, invocation: ModelInvocationDescriptor) -> CallSetup:
        """Return what calls to this model have: no tools and the defaults where no entry says otherwise."""
        entry = self._newest.get(invocation)
        if entry is None:
            return CallSetup()
        return CallSetup(
            tools=self.tools_of(entry),
            system=entry.system,
            settings=entry.settings,
            text_calls=entry.text_calls,
            withheld=entry.withheld,
            result_limit_bytes=entry.result_limit_bytes,
            policy=entry.policy,
        )

    def find_change(self, invocation: ModelInvocationDescriptor, setup: CallSetup) -> ToolSetEntry | None:
        """Return the entry to append before a call to this model with this setup; None if nothing has changed."""
        newest = self._newest.get(invocation)
        if self._same.get(invocation) == (newest, setup):  # the very tools of the call before: nothing is compared
            return None
        wanted = self._entry(invocation, setup)
        known = newest or ToolSetEntry(invocation)
        if all(getattr(known, name) == getattr(wanted, name) for name in _COMPARED):
            self._same[invocation] = (newest, setup)
            return None
        return wanted

    def _entry(self, invocation: ModelInvocationDescriptor, setup: CallSetup) -> ToolSetEntry:
        digests = tuple(map(tool_digest, setup.tools))
        by_digest = dict(zip(digests, setup.tools, strict=True))
        return ToolSetEntry(
            invocation,
            digests,
            tuple(tool for digest, tool in by_digest.items() if digest not in self._specs),
            "" if setup.offered is None or setup.offered == setup.tools else set_digest(setup.offered),
            setup.system,
            dict(setup.settings),
            setup.text_calls,
            setup.withheld,
            setup.result_limit_bytes,
            setup.policy,
        )


_COMPARED = ("digests", "offered", "system", "settings", "text_calls", "withheld", "result_limit_bytes", "policy")


def tool_digest(tool: ToolSpec) -> str:
    """Return the name of a tool by its content: equal specs have equal digests, in every process."""
    return hashlib.sha256(encode_json(msgspec.to_builtins(tool))).hexdigest()[:DIGEST_SIZE]


def set_digest(tools: Sequence[ToolSpec]) -> str:
    """Return the name of a set of tools by its content and order."""
    return _joined(map(tool_digest, tools))


def offered_digest(entry: ToolSetEntry) -> str:
    """Return the digest of the set that the context offered for the calls of an entry."""
    return entry.offered or _joined(entry.digests)


def _joined(digests: Iterable[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:DIGEST_SIZE]


def _repair_digests(entry: ToolSetEntry, name: str, digests: object) -> None:
    if not isinstance(digests, (tuple, list)) or not all(
        isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests
    ):
        raise InvalidValue.of_content(f"tool_set.{name}", digests, f"digests of {DIGEST_SIZE} hexadecimal digits")
    if name == "digests":
        force_setattr(entry, name, tuple(digests))


def _unchangeable(spec: ToolSpec) -> ToolSpec:
    """The spec with texts that JSON can hold and a schema that cannot be changed."""
    description = None if spec.description is None else join_surrogates(spec.description)
    return ToolSpec(spec.name, description, frozen(spec.parameter_schema), spec.strict)


def _without_secrets(value: Any) -> Any:
    """JSON without what looks like a secret, by its name or by itself."""
    if isinstance(value, dict):
        return {
            name: REDACTED if isinstance(item, str) and _SECRET_NAME.search(name) else _without_secrets(item)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    return redact(value) if isinstance(value, str) else value
