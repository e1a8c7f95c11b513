"""Which lines and names of folded entries are kept: those worth their tokens, the best first.

The worth of a line is its chance to be copied, and the chances of its names that no other line shows. Chosen over all
entries together, greedily by worth per token. Knows no epochs and no messages.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..message import Message
from .index import Block, HistoryIndex
from .ledger import Zone, picks_in_order
from .lines import key_of, names_in, said_in
from .worth import Judge

__all__ = ["Candidate", "Rates", "Shown", "choose"]

# A block's lines that may be kept: its number, and which lines.
Candidate = tuple[int, Sequence[int]]

_CHARACTERS_PER_TOKEN = 4
_HEADER_TOKENS = 4.0
_GAP_TOKENS = 0.5
# How much of the room gists that were given may take.
GIST_SHARE = 0.5
# A passage is never longer than so many lines.
PASSAGE_LINES = 16
# A tool's newest state is kept whole: so much each token of it is worth.
STATE_WORTH = 0.02


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must be worth to be kept, and what each sort of content is worth beside a copied line."""

    least: float
    least_name: float
    name: float
    request: float
    names_share: float = 0.1


class Shown:
    """What a request shows outside the part that is being chosen."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.line_names: set[str] = set()

    def add_block(self, index: HistoryIndex, number: int) -> None:
        """Take in a block that stands there whole."""
        block = index.blocks[number]
        self.keys.update(block.keys)
        for names in block.names:
            self.line_names.update(names)

    def add_lines(self, keys: Iterable[str], names: Iterable[str]) -> None:
        """Take in lines by their keys, and the names in them."""
        self.keys.update(keys)
        self.line_names.update(names)

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Take in messages as they are shown."""
        for message in messages:
            for line in said_in(message.parts).split("\n"):
                self.keys.add(key_of(line))
                self.line_names.update(names_in(line))


def choose(
    index: HistoryIndex,
    judge: Judge,
    candidates: Sequence[Candidate],
    shown: Shown,
    *,
    listed_names: Iterable[str] = (),
    rates: Rates,
    room: float,
) -> Zone:
    """Return what is kept in at most `room` tokens of the candidates and of names that were listed already."""
    gists, gist_tokens = _choose_gists(index, candidates, room=GIST_SHARE * room)
    room -= gist_tokens
    listed = rates.names_share * room
    chosen, covered, used = _choose_lines(index, judge, candidates, shown, rates=rates, room=room - listed)
    hidden = set(listed_names)
    for number, lines in candidates:
        names_of = index.blocks[number].names
        for line in lines:
            hidden.update(names_of[line])
    hidden -= covered
    names = _choose_names(judge, hidden, rates=rates, room=min(listed, room - used))
    # An entry of which a line is kept says more than its gist.
    furthest = tuple((index.blocks[number].serial, index.blocks[number].place) for number in gists - chosen.keys())
    return Zone(picks_in_order(chosen, index.blocks), names, gists=tuple(sorted(furthest)))


def _choose_gists(index: HistoryIndex, candidates: Sequence[Candidate], *, room: float) -> tuple[set[int], float]:
    """The blocks whose given gists fit, the newest first, and their tokens."""
    chosen: set[int] = set()
    used = 0.0
    for number in sorted({number for number, _ in candidates}, reverse=True):
        gist = index.blocks[number].gist
        cost = _HEADER_TOKENS + _cost(gist) if gist is not None else 0.0
        if gist is not None and used + cost <= room:
            chosen.add(number)
            used += cost
    return chosen, used


def _choose_lines(
    index: HistoryIndex, judge: Judge, candidates: Sequence[Candidate], shown: Shown, *, rates: Rates, room: float
) -> tuple[dict[int, list[int]], set[str], float]:
    """Return the chosen lines by block, the names that lines now show, and the tokens used."""
    covered = set(shown.line_names)
    queue = list(_offers(index, judge, candidates, shown, rates=rates, covered=covered))
    heapq.heapify(queue)
    chosen: dict[int, list[int]] = {}
    used = 0.0
    while queue:
        density, number, lines, own, cost = heapq.heappop(queue)
        block = index.blocks[number]
        worth = own + _name_worth(judge, block, lines, covered, rates)
        if worth / cost < -density * 0.999:  # other lines show its names by now: back into the queue, cheaper
            if worth >= rates.least * cost:
                heapq.heappush(queue, (-worth / cost, number, lines, own, cost))
            continue
        cost += _GAP_TOKENS if number in chosen else _HEADER_TOKENS + _GAP_TOKENS
        if used + cost > room:
            if room - used < _HEADER_TOKENS:
                break
            continue
        used += cost
        chosen.setdefault(number, []).extend(lines)
        for line in lines:
            covered.update(block.names[line])
    return chosen, covered, used


def _name_worth(judge: Judge, block: Block, lines: Sequence[int], covered: set[str], rates: Rates) -> float:
    """What the names are worth that some lines would show first."""
    if len(lines) == 1:
        fresh: Iterable[str] = block.names[lines[0]]
    else:
        fresh = {name for line in lines for name in block.names[line]}
    return rates.name * sum([judge.use(name) for name in fresh if name not in covered])


def _offers(
    index: HistoryIndex,
    judge: Judge,
    candidates: Sequence[Candidate],
    shown: Shown,
    *,
    rates: Rates,
    covered: set[str],
) -> Iterator[tuple[float, int, tuple[int, ...], float, float]]:
    """Lines that are worth their tokens, at their latest place alone: worth per token negated, place, own worth, cost.

    What may be edited next is offered in whole passages, everything else line by line.
    """
    for number, lines in candidates:
        block = index.blocks[number]
        if index.is_outdated(number):
            continue
        is_whole = index.is_fresh(block)
        if index.states.get((block.tool, block.kind)) == number and lines:
            whole = tuple(lines)
            yield (
                -STATE_WORTH,
                number,
                whole,
                STATE_WORTH * block.tokens,
                sum([_cost(block.lines[line]) for line in whole]),
            )
            continue
        for passage in _passages(block, lines) if is_whole else ((line,) for line in lines):
            own = 0.0
            is_new = False
            for line in passage:
                key = block.keys[line]
                if not key or key in shown.keys or index.newest[key] != (number, line):
                    continue
                is_new = True
                own += judge.copy(number, line)
                if key in index.requested:
                    own += rates.request * index.requested[key]
            if not is_new:
                continue
            cost = sum([_cost(block.lines[line]) for line in passage])
            worth = own + _name_worth(judge, block, passage, covered, rates)
            if worth >= rates.least * cost:
                yield -worth / cost, number, passage, own, cost


def _passages(block: Block, lines: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Lines that follow one another, as far as the next blank one and no more than PASSAGE_LINES."""
    passage: list[int] = []
    for line in lines:
        if passage and (passage[-1] != line - 1 or not block.keys[line] or len(passage) >= PASSAGE_LINES):
            yield tuple(passage)
            passage = []
        if block.keys[line]:
            passage.append(line)
    if passage:
        yield tuple(passage)


def _choose_names(judge: Judge, hidden: Iterable[str], *, rates: Rates, room: float) -> tuple[str, ...]:
    """Names that no line shows, the likeliest first, as many as are worth it and fit."""
    offers = sorted((-rates.name * judge.use(name) / _cost(name), name) for name in hidden)
    names: list[str] = []
    for density, name in offers:
        if -density < rates.least_name:
            break
        if _cost(name) <= room:
            room -= _cost(name)
            names.append(name)
    return tuple(names)


def _cost(text: str) -> float:
    return (len(text) + 1) / _CHARACTERS_PER_TOKEN
