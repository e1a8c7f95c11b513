"""How likely a line is to be copied, and a name to be used, by a call to come: two small logistic models.

What they look at are the tables below; their weights are fitted by `scripts/fit_context_weights.py` and shipped beside
this file. Knows no budget: what is worth keeping is somebody else's choice.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from math import exp, log
from operator import mul
from typing import TypeAlias

import msgspec

from .index import Block, HistoryIndex, NameUse

__all__ = [
    "BLOCK_FEATURES",
    "LINE_FEATURES",
    "NAME_FEATURES",
    "Judge",
    "LogisticModel",
    "NameRarity",
    "Weights",
    "block_features",
    "line_features",
    "name_features",
]

# Lines shorter than this are copied with others or not at all.
COPIED_SIZE = 20
# So many lines on each side make a line's neighbourhood: an edit quotes what stands around it.
_NEAR = 4
_AGE_UNIT = 8_000

BLOCK_FEATURES = ("age", "subject age", "edited", "edit age", "unedited", "size", "failed")
LINE_FEATURES = ("length", "repeated", "called", "names", "said", "called name", "rare", "near said")
NAME_FEATURES = (
    "age",
    "count",
    "called",
    "calls",
    "call age",
    "life",
    "said",
    "rare",
    "rare said",
    "rare called",
    "length",
    "dot",
    "dash",
    "digits",
)

# How rare the rarest of some names is: of those that somebody said, of those that a call had, of all.
Rarity: TypeAlias = tuple[float, float, float]
_NO_NAMES: Rarity = (0.0, 0.0, 0.0)
_NEVER = 1 << 60
_MOST_NAMES = 30
_LOGS = tuple(log(1 + count) for count in range(_MOST_NAMES + 1))


class LogisticModel(msgspec.Struct, frozen=True):
    """A bias, a weight for each kind of block, and one for each feature by its name."""

    bias: float
    kinds: dict[str, float]
    weights: dict[str, float]

    def ordered(self, features: Sequence[str]) -> tuple[float, ...]:
        """Return the weights in the order of `features`."""
        return tuple(self.weights[name] for name in features)


class Weights(msgspec.Struct, frozen=True):
    """Both models, as they stand in `weights.json`."""

    line: LogisticModel
    name: LogisticModel


@cache
def load_weights() -> Weights:
    """Return the weights that are shipped."""
    return msgspec.json.decode(files(__package__).joinpath("weights.json").read_bytes(), type=Weights)


# ---------------------------------------------------------------- features


def block_features(index: HistoryIndex, block: Block) -> tuple[float, ...]:
    """Return what all lines of a block have in common, beside its kind."""
    now = index.position
    use = index.subjects.get(block.subject) if block.subject is not None else None
    edited = use is not None and use.edited_at >= 0
    age = _age(now - block.position)
    return (
        age,
        _age(now - use.touched_at) if use else age,
        float(edited),
        _age(now - use.edited_at) if use and edited else 0.0,
        float(use is not None and not edited),
        log((block.tokens + 20) / 500),
        float(block.failed),
    )


def line_features(index: HistoryIndex, block: Block, line: int, rarity: Sequence[Rarity]) -> tuple[float, ...]:
    """Return what one line has beside that, which must be long enough to be copied; `rarity` is each line's."""
    key = block.keys[line]
    shown = index.shown[key]
    return (
        log(len(key) / 40),
        log(shown) if shown > 1 else 0.0,
        float(key in index.called),
        _LOGS[min(len(block.names[line]), _MOST_NAMES)],
        *rarity[line],
        max(rarity[max(0, line - _NEAR) : line + _NEAR + 1])[0],
    )


def name_features(index: HistoryIndex, name: str, use: NameUse) -> tuple[float, ...]:
    """Return what is known of a name, beside the kind of block that had it last."""
    now = index.position
    rare = 1 / (1 + use.count**0.5)
    return (
        _age(now - use.seen_at),
        log(use.count),
        float(use.calls > 0),
        log(1 + use.calls),
        _age(now - use.called_at) if use.calls else 0.0,
        _age(use.seen_at - use.first_at),
        float(use.said > 0),
        1 / use.count**0.5,
        rare if use.said else 0.0,
        rare if use.calls else 0.0,
        *_shape(name),
    )


class NameRarity:
    """How rare names are at one moment; what was asked once is remembered."""

    def __init__(self, index: HistoryIndex) -> None:
        self._index = index
        self._known: dict[tuple[str, ...], Rarity] = {(): _NO_NAMES}

    def of(self, names: tuple[str, ...]) -> Rarity:
        """Return the rarity of the rarest of several names."""
        known = self._known.get(names)
        if known is None:
            fewest = said = called = _NEVER
            for name in names:
                use = self._index.names[name]
                count = use.count
                fewest = min(fewest, count)
                said = count if use.said and count < said else said
                called = count if use.calls and count < called else called
            known = self._known[names] = (
                0.0 if said == _NEVER else 1 / (1 + said**0.5),
                0.0 if called == _NEVER else 1 / (1 + called**0.5),
                1 / fewest**0.5,
            )
        return known


@lru_cache(maxsize=65_536)
def _shape(name: str) -> tuple[float, float, float, float]:
    digits = sum(character.isdigit() for character in name) / len(name)
    return log(len(name) / 12), float("." in name), float("-" in name), digits


def _age(tokens: int) -> float:
    return log((tokens + 500) / _AGE_UNIT)


# ---------------------------------------------------------------- judging


class Judge:
    """Both models at one moment of a conversation; what was asked once is remembered."""

    def __init__(self, index: HistoryIndex, weights: Weights | None = None) -> None:
        weights = weights or load_weights()
        self._index = index
        self._line, self._name = weights.line, weights.name
        self._block_weights = weights.line.ordered(BLOCK_FEATURES)
        self._line_weights = weights.line.ordered(LINE_FEATURES)
        self._name_weights = weights.name.ordered(NAME_FEATURES)
        self._rarity = NameRarity(index)
        self._blocks: dict[int, tuple[float, list[Rarity]]] = {}
        self._copies: dict[tuple[int, int], float] = {}
        self._uses: dict[str, float] = {}

    def copy(self, number: int, line: int) -> float:
        """Return how likely a line of a block is to be copied."""
        known = self._copies.get((number, line))
        if known is None:
            block = self._index.blocks[number]
            known = self._judge_line(number, block, line) if len(block.keys[line]) >= COPIED_SIZE else 0.0
            self._copies[number, line] = known
        return known

    def use(self, name: str) -> float:
        """Return how likely a name is to be used."""
        known = self._uses.get(name)
        if known is None:
            use = self._index.names[name]
            score = self._name.bias + self._name.kinds[use.kind]
            score += sum(map(mul, name_features(self._index, name, use), self._name_weights))
            known = self._uses[name] = _chance(score)
        return known

    def _judge_line(self, number: int, block: Block, line: int) -> float:
        known = self._blocks.get(number)
        if known is None:
            shared = self._line.bias + self._line.kinds[block.kind]
            shared += sum(map(mul, block_features(self._index, block), self._block_weights))
            known = self._blocks[number] = (shared, list(map(self._rarity.of, block.names)))
        features = line_features(self._index, block, line, known[1])
        return _chance(known[0] + sum(map(mul, features, self._line_weights)))


def _chance(score: float) -> float:
    return 1 / (1 + exp(-score)) if -30 < score < 30 else float(score > 0)
