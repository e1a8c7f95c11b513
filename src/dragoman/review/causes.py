"""Two calls and what their requests share → why the later one missed the cache: a word and a sentence. Pure.

The checks go from what loses everything to what loses the end: the life of the cache, then the first byte that differs.
New text at the end is no miss.
"""

from collections.abc import Sequence

from .._jsontext import decode_json
from ..context import RECALL_TOOL
from ..history import EpochEntry, ResetEntry, SystemInstructionEntry, ToolSetEntry
from ..wire.cachedparts import CachedRequest
from .cacherules import LONG_LIFE
from .pairs import CacheCause, Pair, Seen, Verdict

__all__ = ["find_cause"]

# Tokens are estimated: up to so many times a provider's minimum, a prefix that it does not cache may be too short.
NEARLY_SHORT = 1.2
# Fields of a request that no cache looks at.
_NEUTRAL = frozenset(
    {
        *("stream", "stream_options", "metadata", "requestMetadata", "user", "safety_identifier", "store", "include"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "inferenceConfig"),
        *("temperature", "top_p", "top_k", "seed", "stop", "stop_sequences", "generationConfig"),
    }
)


def find_cause(pair: Pair) -> Verdict:
    """Return why the later call missed the cache, or that it did not."""
    return _find_loss(pair) or (_find_rest(pair) if pair.comparison.is_whole else _find_change(pair))


# ---------------------------------------------------------------- all is lost


def _find_loss(pair: Pair) -> Verdict | None:
    """Nothing was asked to be cached, or the cache has not lived long enough."""
    if () in (pair.old_request.marks, pair.new_request.marks):
        which = "This request" if pair.new_request.marks == () else "The request before"
        return Verdict(cause=CacheCause.OFF, sentence=f"{which} marks nothing for the cache.")
    life = pair.rules.most_seconds if pair.is_read is None else pair.rules.seconds
    life = LONG_LIFE if pair.old_request.is_long_lived else life
    is_alive = pair.is_read and pair.expected.tokens > 0
    if pair.seconds is None or pair.seconds <= life or is_alive:
        return None
    passed = f"{_time(pair.seconds)} have passed since the last call to this model"
    return Verdict(cause=CacheCause.EXPIRED, sentence=f"{passed}; its cache lives about {_time(life)}.")


# ---------------------------------------------------------------- the earlier request is a prefix


def _find_rest(pair: Pair) -> Verdict:
    expected = pair.expected
    if pair.comparison.lost_marks and not pair.is_read:
        reach = f"more than {pair.new_request.lookback} blocks before the next mark"
        return Verdict(
            cause=CacheCause.LOOKBACK, sentence=f"What is cached ends {reach}: the provider does not look there."
        )
    least = pair.rules.minimum
    if expected.is_too_short or (pair.is_read is False and expected.shared < NEARLY_SHORT * least):
        told = f"The shared beginning has about {expected.shared:,} tokens"
        may_be = "" if expected.is_too_short else ", which may be too few"
        return Verdict(cause=CacheCause.SHORT, sentence=f"{told}{may_be}: this provider caches {least:,} or more.")
    if pair.is_read is False:
        return _find_unseen(pair)
    return Verdict(cause=CacheCause.KEPT, sentence="The request begins with all of the request before it.")


def _find_unseen(pair: Pair) -> Verdict:
    """The provider has read far less than the bytes allow."""
    usage = pair.new.call.usage
    reported = (usage.cache_read_tokens if usage is not None else None) or 0
    figures = f"the provider reports {reported:,} cached tokens of about {pair.expected.tokens:,}"
    old, new = pair.old_request.others, pair.new_request.others
    names = sorted(name for name in {*old, *new} - _NEUTRAL if old.get(name) != new.get(name))
    if names:
        return Verdict(cause=CacheCause.SETTINGS, sentence=f"{_changed('setting', names)}: {figures}.")
    epoch = pair.first_of(EpochEntry)
    if isinstance(epoch, EpochEntry):
        return _of_epoch(pair, epoch)
    if _is_unsure(pair.old) or _is_unsure(pair.new):
        why = "the record does not hold all that was sent"
        return Verdict(cause=CacheCause.UNKNOWN, sentence=f"Nothing recorded has changed, but {why}; {figures}.")
    return Verdict(cause=CacheCause.PROVIDER, sentence=f"Nothing has changed in the request, and {figures}.")


def _is_unsure(seen: Seen) -> bool:
    """Whether the request that was sent may differ from what is rendered again."""
    return seen.call.request is None and (
        seen.call.setup is None or seen.rendered is None or seen.rendered.is_exact is False
    )


# ---------------------------------------------------------------- something before the end has changed


def _find_change(pair: Pair) -> Verdict:
    reset = pair.first_of(ResetEntry)
    if reset is not None:
        sentence = f"The conversation began anew at #{reset.serial}."
        return Verdict(cause=CacheCause.RESET, sentence=sentence, entry_serial=reset.serial)
    match pair.comparison.section:
        case "settings":
            name = pair.comparison.path
            return _noted(pair, CacheCause.SETTINGS, f"{_changed('setting', [name])}.")
        case "tools":
            return _of_tools(pair)
        case "system":
            return _of_system(pair)
        case "messages":
            return _of_client_messages(pair) if pair.new.rendered is None else _of_messages(pair)


def _of_tools(pair: Pair) -> Verdict:
    if any(seen.call.request is None and seen.call.setup is None for seen in (pair.old, pair.new)):
        # What is rendered has stand-ins for the tools that the conversation names.
        return Verdict(cause=CacheCause.UNKNOWN, sentence="The record does not say which tools the model was given.")
    old, new = _tools_by_name(pair.old_request), _tools_by_name(pair.new_request)
    said = [f"`{name}` was added" for name in new if name not in old]
    said += [f"`{name}` was removed" for name in old if name not in new]
    said += [f"`{name}` was changed" for name in new if name in old and new[name] != old[name]]
    epoch = pair.first_of(EpochEntry)
    if isinstance(epoch, EpochEntry) and {*old} ^ {*new} == {RECALL_TOOL.name} and len(said) == 1:
        return _of_epoch(pair, epoch)  # which offers the tool from then on
    told = ", ".join(said[:5]) + (f" and {len(said) - 5} more" if len(said) > 5 else "")
    return _noted(pair, CacheCause.TOOLS, f"The tools changed: {told or 'their order'}.")


def _of_system(pair: Pair) -> Verdict:
    old, new = pair.old.call.setup, pair.new.call.setup
    if old is not None and new is not None and new.text_calls and old.tools != new.tools:
        return _noted(pair, CacheCause.TOOLS, "The tools changed, which this model is told in its system text.")
    changed = [entry for entry in pair.between if isinstance(entry, SystemInstructionEntry)]
    if changed:
        sentence = f"The system instruction was changed at #{changed[-1].serial}."
        return Verdict(cause=CacheCause.SYSTEM, sentence=sentence, entry_serial=changed[-1].serial)
    return _noted(pair, CacheCause.SYSTEM, f"The system text changed ({pair.comparison.path}).")


def _of_client_messages(pair: Pair) -> Verdict:
    path = pair.comparison.path
    if pair.old.is_parent:
        sentence = f"The client changed its history at {path}; the session was forked at #{pair.forked_at}."
        return Verdict(cause=CacheCause.EDIT, sentence=sentence, entry_serial=pair.forked_at)
    return Verdict(cause=CacheCause.EDIT, sentence=f"The client changed its history at {path}.")


def _of_messages(pair: Pair) -> Verdict:
    """An own request shows something of the conversation differently."""
    epoch, setup = pair.first_of(EpochEntry), pair.new.call.setup
    if isinstance(epoch, EpochEntry):
        return _of_epoch(pair, epoch)
    if pair.old.is_parent:
        sentence = (
            f"The session was forked at #{pair.forked_at}: what its parent said after that is not in this request."
        )
        return Verdict(cause=CacheCause.FORK, sentence=sentence, entry_serial=pair.forked_at)
    serial, has_screen = _first_difference(pair)
    if has_screen:
        sentence = "The widgets' screen stood at the end of the request before, and now something else stands there."
        return Verdict(cause=CacheCause.WIDGET, sentence=sentence, entry_serial=serial)
    if setup is not None and setup.policy == "simple":
        sentence = "The policy `simple` shows an entry at another level of detail as soon as a newer one is there."
        return Verdict(cause=CacheCause.LEVEL, sentence=sentence, entry_serial=serial)
    if pair.first_of(ToolSetEntry) is not None:
        return _noted(pair, CacheCause.SETTINGS, "A setting changed how entries are written into requests.")
    where = pair.comparison.path if serial is None else f"#{serial}"
    return Verdict(
        cause=CacheCause.HANDOFF,
        sentence=f"The new entries change how {where} is encoded for this model.",
        entry_serial=serial,
    )


def _first_difference(pair: Pair) -> tuple[int | None, bool]:
    """The entry of the first message that the two contexts do not share, and whether the widgets' screen was there."""
    if pair.old.rendered is None or pair.new.rendered is None:
        return None, False
    old, new = pair.old.rendered.context, pair.new.rendered.context
    for index, (before, after) in enumerate(zip(old.messages, new.messages, strict=False)):
        if before is not after and before != after:
            if index >= len(old.sources):
                return None, False
            return old.sources[index].serial, old.sources[index].has_screen
    return None, False


def _of_epoch(pair: Pair, epoch: EpochEntry) -> Verdict:
    """The projection chose anew; what made it do so is the cause, where that had lost the cache already."""
    folded = f"the context was rebuilt at #{epoch.serial}"
    match epoch.reason:
        case "cache expired":
            passed = f"{_time(pair.seconds or 0)} had passed since the last call"
            cause, sentence = (
                CacheCause.EXPIRED,
                f"{passed}: the cache was assumed to have expired, and {folded}.",
            )
        case "model changed":
            cause, sentence = CacheCause.MODEL, f"Another model answered in between, and {folded}."
        case "tools changed":
            cause, sentence = CacheCause.TOOLS, f"The tools changed, and {folded}."
        case reason:
            cause, sentence = CacheCause.EPOCH, f"An epoch began ({reason}): {folded}."
    return Verdict(cause=cause, sentence=sentence, entry_serial=epoch.serial)


# ---------------------------------------------------------------- words


def _noted(pair: Pair, cause: CacheCause, sentence: str) -> Verdict:
    """The verdict, with the entry that recorded the change if there is one."""
    noted = pair.first_of(ToolSetEntry)
    return Verdict(cause=cause, sentence=sentence, entry_serial=None if noted is None else noted.serial)


def _changed(what: str, names: Sequence[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:5])
    return f"The {what} {listed} changed" if len(names) == 1 else f"The {what}s {listed} changed"


def _tools_by_name(request: CachedRequest) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for item, section in zip(request.items, request.sections, strict=True):
        if section == "tools":
            tool = decode_json(item.data)
            inner = [tool, *map(tool.get, ("function", "toolSpec", "custom"))] if isinstance(tool, dict) else []
            names = (each.get("name") or each.get("type") for each in inner if isinstance(each, dict))
            # A function's own name comes before the type of the tool.
            name = next((each["name"] for each in inner if isinstance(each, dict) and "name" in each), None)
            found[str(name or next(filter(None, names), item.path))] = item.data
    return found


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7_200 else f"{seconds / 3_600:.1f} hours"
