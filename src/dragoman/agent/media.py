"""Pictures and files of a run: refused before they are recorded, read and fitted before each call to a model.

A recorded path is looked at again for every call, in the folder of the settings. A file that cannot be read then, or
that has changed since it was recorded, is a line of text in the request: it never fails a session. The same goes for
what a model's server has refused: the agent remembers it and sends it no more.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..errors import ErrorCode, InvalidValue, ToolError
from ..folders import ConfinedFolder
from ..history import ContextMessage, HistoryEntry, HistoryToolCallResult, ModelInputEntry, context_messages
from ..history.media import (
    CANNOT_READ,
    Medium,
    describe_medium,
    describe_unreadable,
    fit_medium,
    not_shown,
    unreadable,
    unshown_media,
)
from ..mediatypes import guess_type
from ..message import FileRef, Image, Message, ModelInvocationDescriptor, Part, Text, ToolCall, ToolResult, UnknownPart
from ..request import RuntimeConfig
from ..router import AnyModel, LlmRequest, ProviderRouter
from ..target import TargetRules
from ..toolspec import ToolSpec

__all__ = ["MediaReader", "Unshown", "model_at_hand"]

REFUSED = "the provider refused it"
CHANGED = "the file has changed since it was given"
NO_FOLDER = "there is no folder to read it from: name one in AgentConfig.runtime.root, or give the bytes as data"

# The words for what a server refuses; media that it refuses are noted by their keys too.
WITHHELD = frozenset({"tools", "schema", "opaque", "media", "these media"})

# What a file looked like when it was read: its state, or why it could not be read.
_State: TypeAlias = tuple[int, ...] | str


class Unshown(NamedTuple):
    """A medium that a model gets as a line of text: what it is, and why."""

    what: str
    why: str


class _Fitted(NamedTuple):
    """A message as a model is sent it, and the states of the files that were read for it."""

    given: Message
    sent: Message
    unshown: tuple[Unshown, ...] = ()
    states: tuple[_State, ...] = ()


class MediaReader:
    """Reads the files of one agent and fits media to its models. What was sent before is looked at once."""

    def __init__(self, config: RuntimeConfig) -> None:
        self.folder = None if config.root is None else ConfinedFolder(config.root)
        self._limit = config.file_limit_bytes
        # What the server of a model has refused: `tools`, `schema`, `opaque`, `media`, `these media` and their keys.
        self.refused: set[tuple[ModelInvocationDescriptor, str]] = set()
        # The last request to each model: what was given, and what became of the messages that have media.
        self._last: dict[ModelInvocationDescriptor, tuple[Sequence[Message], dict[int, _Fitted]]] = {}
        self._read_by: dict[ModelInvocationDescriptor, dict[int, _Fitted]] = {}  # the last one that had an answer

    # ------------------------------------------------------------ before it is recorded

    def admit_input(self, entry: ModelInputEntry, model: AnyModel | None) -> ModelInputEntry:
        """Return the input as it is recorded: a path with the type, size and digest of its file. Blocks.

        Raises InvalidValue for a path that cannot be read, ModelError (`unsupported`) for what the model cannot read.
        """
        parts: list[Part] = []
        for part in entry.parts:
            if isinstance(part, (Image, FileRef)):
                part, read = self._admitted(part)  # noqa: PLW2901  # as it is recorded
                rules = None if model is None else self._rules(model)
                if model is not None and rules is not None and fit_medium(read, rules.user_media, rules) is None:
                    raise unreadable(part, rules, model.invocation)
            parts.append(part)
        same = all(old is new for old, new in zip(entry.parts, parts, strict=True))
        return entry if same else msgspec.structs.replace(entry, parts=tuple(parts))

    def admit_result(self, result: HistoryToolCallResult, call: ToolCall) -> HistoryToolCallResult:
        """Return a tool's result as it is recorded; a failed one if it names a file that cannot be read. Blocks."""
        try:
            parts = (part if isinstance(part, UnknownPart) else self._admitted(part)[0] for part in result.attachments)
            return msgspec.structs.replace(result, attachments=tuple(parts))
        except InvalidValue as error:
            said, code = f"{result.tool_name} failed: {error}", ErrorCode.TOOL_FAILED
            return HistoryToolCallResult.of_text(call, said, error_code=code, elapsed_seconds=result.elapsed_seconds)

    def _admitted(self, part: Medium) -> tuple[Medium, Medium]:
        """The medium as it is recorded, and with its bytes."""
        if isinstance(part, Image) or part.path is None:
            return part, part
        try:
            read = self._load(part)
        except ToolError as error:
            raise InvalidValue(f"the file {error}") from None
        assert read.data is not None
        digest = hashlib.sha256(read.data).hexdigest()
        if part.sha256 not in (None, digest):
            raise InvalidValue(f"the file {part.path[:200]!r} is not the one that sha256 says")
        recorded = msgspec.structs.replace(part, mime_type=read.mime_type, size=len(read.data), sha256=digest)
        return recorded, read

    # ------------------------------------------------------------ before a call

    async def fit(self, messages: tuple[Message, ...], model: AnyModel) -> tuple[tuple[Message, ...], list[Unshown]]:
        """Return the messages with their files read and unreadable media as text; and which media those are."""
        last, known = self._last.get(model.invocation, ((), {}))
        matches = list(map(is_, last, messages))
        same = matches.index(False) if False in matches else len(matches)
        is_foreign = (model.invocation, "opaque") in self.refused
        new = {
            index: message
            for index, message in enumerate(messages[same:], same)
            if _has_media(message) or (is_foreign and _is_made(message))
        }
        known = {index: one for index, one in known.items() if index < same}

        def work() -> dict[int, _Fitted]:
            before = {index: self._fitted(one.given, model, one) if one.states else one for index, one in known.items()}
            return before | {index: self._fitted(message, model) for index, message in new.items()}

        if any(one.states for one in known.values()) or any(map(_paths, new.values())):
            fitted = await asyncio.to_thread(work)
        else:
            fitted = work()
        self._last[model.invocation] = (messages, fitted)
        sent = list(messages)
        for index, one in fitted.items():
            sent[index] = one.sent
        return tuple(sent) if fitted else messages, [each for one in fitted.values() for each in one.unshown]

    def _fitted(self, given: Message, model: AnyModel, before: _Fitted | None = None) -> _Fitted:
        states = tuple(self._state(part) for part in _paths(given))
        if before is not None and before.states == states:
            return before  # the very message, so that what was encoded of it is used again
        failed: list[Unshown] = []
        read = _with_files(given, lambda part: self._read(part, failed)) if states else given
        target, rules = model.invocation, self._rules(model)
        if (target, "these media") in self.refused:
            refused = [part for part in _media(read) if (target, _key(part)) in self.refused]
            failed += (Unshown(describe_medium(part), REFUSED) for part in refused)
            read = _without(read, refused, REFUSED)
        if (target, "opaque") in self.refused and read.meta is not None:
            read = msgspec.structs.replace(read, meta=msgspec.structs.replace(read.meta, invocation=None))
        origin = read.meta.invocation if read.meta is not None else None
        is_native = rules.takes_opaque_from(origin, target.specification, target.model)
        unread = unshown_media(read, rules, is_native=is_native)
        unshown = (*failed, *(Unshown(describe_medium(part), CANNOT_READ) for part in unread))
        if (target, "media") in self.refused:  # the handoff goes by what the model is said to read
            return _Fitted(given, _without(read, unread), unshown, states)
        return _Fitted(given, describe_unreadable(read, rules), unshown, states)

    def params(self, model: AnyModel) -> dict[str, Any]:
        """Return the settings of a call that leave out what the model's server has refused."""
        return {"encrypted_reasoning": False} if (model.invocation, "opaque") in self.refused else {}

    def withheld_from(self, model: AnyModel) -> tuple[str, ...]:
        """Return the words for what the model's server has refused and no longer gets."""
        if not self.refused:
            return ()
        return tuple(sorted(what for target, what in self.refused if target == model.invocation and what in WITHHELD))

    def note_read(self, model: AnyModel) -> None:
        """Note that the model has answered the last request, so that its media are the last to be given up."""
        if model.invocation in self._last:
            self._read_by[model.invocation] = self._last[model.invocation][1]

    def give_up(self, what: str, model: AnyModel) -> bool:
        """Note what the model's server refused of the last request; return whether the next will go without it.

        Only the server's reply tells what it reads: a local model may read no images, a link may be dead. From now on
        the model gets a line of text for each medium (`media`, which refuses new ones too), or for those of this
        request (`these media`; for the new ones alone, if there are any); or nothing that only its maker can read
        (`opaque`), and is not asked for such things.
        """
        target, rules = model.invocation, self._rules(model)
        _, fitted = self._last.get(target, ((), {}))
        if what == "opaque":
            found = {what}
        else:
            media = [part for one in fitted.values() for part in _media(one.sent) if not _is_said(part, rules)]
            read = {id(part) for one in self._read_by.get(target, {}).values() for part in _media(one.sent)}
            media = [part for part in media if id(part) not in read] or media  # one that was read may be a dead link
            found = {what, *(map(_key, media) if what == "these media" else ())} if media else set()
        new = {(target, each) for each in found} - self.refused
        if new:
            self.refused |= new
            self._last.pop(target, None)
        return bool(new)

    def _rules(self, model: AnyModel) -> TargetRules:
        if (model.invocation, "media") not in self.refused:
            return model.rules
        none: frozenset[str] = frozenset()
        return msgspec.structs.replace(model.rules, user_media=none, result_media=none, assistant_media=none)

    def _read(self, part: FileRef, failed: list[Unshown]) -> FileRef | Text:
        """The file with its bytes, or the line that says why there are none."""
        try:
            read = self._load(part)
            assert read.data is not None
            if part.sha256 in (None, hashlib.sha256(read.data).hexdigest()):
                return read
            why = CHANGED
        except ToolError as error:
            why = str(error)
        failed.append(Unshown(describe_medium(part), why))
        return not_shown(part, why)

    def _state(self, part: FileRef) -> _State:
        try:
            return self._of_folder().file_state(part.path or "")
        except ToolError as error:
            return str(error)

    def _load(self, part: FileRef) -> FileRef:
        """The file with its bytes, name and type; raise ToolError for one that cannot be read."""
        path = part.path or ""
        data = self._of_folder().read_file(path, limit=self._limit)
        name = part.name or path.replace("\\", "/").rpartition("/")[2]
        kind = part.mime_type or guess_type(name, data)
        if not data and (kind or "").startswith("image/"):
            raise ToolError(f"{path[:200]!r} cannot be read: it is empty")
        return FileRef(data=data, mime_type=kind, name=name, provider_data=part.provider_data)

    def _of_folder(self) -> ConfinedFolder:
        if self.folder is None:
            raise ToolError(f"cannot be read: {NO_FOLDER}")
        return self.folder


def model_at_hand(
    router: ProviderRouter,
    entries: Sequence[HistoryEntry],
    entry: ModelInputEntry,
    tools: tuple[ToolSpec, ...],
    strategy: str,
) -> AnyModel | None:
    """Return the model that would get this input after these entries; None if no route leads to one."""
    context: tuple[ContextMessage, ...] = ()
    if router.looks_at_context:
        context = context_messages((*entries, msgspec.structs.replace(entry, serial=len(entries), entry_id="-")))
    try:
        return router.route(LlmRequest(context=context, tools=tools, strategy=strategy))[0]
    except Exception:  # noqa: BLE001  # the user's function raises it again when the model is called, and that tells it
        return None


def _parts(message: Message) -> list[object]:
    """The parts of a message, and those inside of a result."""
    parts: list[object] = []
    for part in message.parts:
        is_result = isinstance(part, ToolResult) and isinstance(part.content, tuple)
        parts += part.content if is_result else (part,)  # type: ignore[union-attr]  # a result has content
    return parts


def _media(message: Message) -> list[Medium]:
    return [part for part in _parts(message) if isinstance(part, (Image, FileRef))]


def _key(part: Medium) -> str:
    """The identity of a medium: the digest of its bytes, or its address."""
    if part.data is not None:
        return hashlib.sha256(part.data).hexdigest()
    return part.url or getattr(part, "file_id", None) or ""


def _is_said(part: Medium, rules: TargetRules) -> bool:
    """Whether the request has the medium as text."""
    all_accepted = (rules.user_media, rules.result_media, rules.assistant_media)
    return all(isinstance(fit_medium(part, accepted, rules), Text) for accepted in all_accepted)


def _is_made(message: Message) -> bool:
    """Whether it is known which model made the message: its opaque data may go back there."""
    return message.meta is not None and message.meta.invocation is not None


def _has_media(message: Message) -> bool:
    for part in message.parts:
        if isinstance(part, (Image, FileRef)) or (isinstance(part, ToolResult) and isinstance(part.content, tuple)):
            return True
    return False


def _paths(message: Message) -> list[FileRef]:
    """The files of a message that are given by a path."""
    return [part for part in _parts(message) if isinstance(part, FileRef) and part.path is not None]


def _without(message: Message, unread: Sequence[Medium], why: str = CANNOT_READ) -> Message:
    """The message with a line of text for each of these media, in a result too."""
    lines = {id(part): not_shown(part, why) for part in unread}

    def of(part: Any) -> Any:
        if isinstance(part, ToolResult) and isinstance(part.content, tuple):
            return msgspec.structs.replace(part, content=tuple(map(of, part.content)))
        return lines.get(id(part), part)

    return msgspec.structs.replace(message, parts=tuple(map(of, message.parts))) if lines else message


def _with_files(message: Message, read: Callable[[FileRef], FileRef | Text]) -> Message:
    """The message with what `read` gives for its paths."""

    def of(part: Any) -> Any:
        if isinstance(part, ToolResult) and isinstance(part.content, tuple):
            return msgspec.structs.replace(part, content=tuple(map(of, part.content)))
        return read(part) if isinstance(part, FileRef) and part.path is not None else part

    return msgspec.structs.replace(message, parts=tuple(map(of, message.parts)))
