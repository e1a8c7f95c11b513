"""Fit the weights of `dragoman.context.worth` on recorded conversations, and write them.

    python scripts/fit_context_weights.py ../shared/conversations src/dragoman/context/weights.json

The conversations are replayed; every 6,000 tokens each line and name that is older than what stays live anyway is an
example, and it is a good one if the next thing that happens to it, within 20,000 tokens, is that a call copies or uses
it: by then it is chosen anew. The two models are logistic, with strong regularisation: more features, or weaker
regularisation, raise the fit and not the result.
Needs numpy and scikit-learn, which nothing else here does: pip install numpy scikit-learn
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GroupKFold

from dragoman.context.index import KINDS, HistoryIndex
from dragoman.context.lines import argument_text, key_of, names_in, split_lines
from dragoman.context.worth import (
    BLOCK_FEATURES,
    COPIED_SIZE,
    LINE_FEATURES,
    NAME_FEATURES,
    LogisticModel,
    NameRarity,
    Weights,
    block_features,
    line_features,
    name_features,
)
from dragoman.history import AgentState, ModelOutputEntry
from dragoman.message import ToolCall

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.context_projector import append_recorded, read_conversations

STEP = 6_000
HORIZON = 20_000
YOUNGEST, OLDEST = 4_000, 80_000
SHARE = 0.35
SMALLEST_CONVERSATION = 14_000
REGULARISATION = 0.02


class Examples:
    """Feature rows, whether each came true, and which conversation each is from."""

    def __init__(self) -> None:
        self.rows: list[Sequence[float]] = []
        self.hits: list[int] = []
        self.groups: list[int] = []
        self.position = 0  # of the conversation, in tokens
        self._waiting: dict[str, list[tuple[int, int]]] = {}

    def begin(self, group: int) -> None:
        """Start with another conversation."""
        self._group = group
        self._waiting = {}

    def add(self, what: str, row: Sequence[float]) -> None:
        """Take an example that waits for what happens to `what`."""
        self._waiting.setdefault(what, []).append((len(self.rows), self.position))
        self.rows.append(row)
        self.hits.append(0)
        self.groups.append(self._group)

    def used(self, what: str) -> None:
        """A call used it: the waiting examples came true."""
        for place, position in self._waiting.pop(what, ()):
            self.hits[place] = int(self.position - position <= HORIZON)

    def shown(self, what: str) -> None:
        """It was shown again: whoever needs it now has it from there."""
        self._waiting.pop(what, None)


def collect(conversations: Sequence[dict[str, Any]]) -> tuple[Examples, Examples]:
    """Replay the conversations and return the examples of lines and of names."""
    lines, names = Examples(), Examples()
    chance = random.Random(0)
    for group, conversation in enumerate(conversations):
        lines.begin(group)
        names.begin(group)
        index, state, due = HistoryIndex(), AgentState.create_default(session_id="fit"), 10_000
        for message in conversation["messages"]:
            before = state.next_serial
            lines.position = names.position = index.position
            append_recorded(state, message)
            for entry in state.entries[before:]:
                if isinstance(entry, ModelOutputEntry):
                    _note_uses(entry.message.tool_calls, lines, names)
                known = len(index.blocks)
                index.add(entry, 0)
                for block in index.blocks[known:]:
                    for key, inside in zip(block.keys, block.names, strict=True):
                        lines.shown(key)
                        for name in inside:
                            names.shown(name)
            if index.position >= due and message["role"] != "assistant":
                due = index.position + STEP
                _sample(index, lines, names, chance)
    return lines, names


def _note_uses(calls: Sequence[ToolCall], lines: Examples, names: Examples) -> None:
    for call in calls:
        for leaf in _leaves(call.arguments if call.arguments is not None else call.raw_args_text):
            for name in names_in(leaf):
                names.used(name)
            for line in split_lines(leaf):
                if len(key := key_of(line)) >= COPIED_SIZE:
                    lines.used(key)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield argument_text(value)


def _sample(index: HistoryIndex, lines: Examples, names: Examples, chance: random.Random) -> None:
    rare = NameRarity(index)
    for number, block in enumerate(index.blocks):
        if not YOUNGEST <= index.position - block.position <= OLDEST:
            continue
        shared = (*_kind_row(block.kind), *block_features(index, block))
        rarity = [rare.of(inside) for inside in block.names]
        for place, key in enumerate(block.keys):
            if len(key) >= COPIED_SIZE and index.newest[key] == (number, place) and chance.random() < SHARE:
                lines.add(key, (*shared, *line_features(index, block, place, rarity)))
    for name, use in index.names.items():
        if index.position - use.seen_at >= YOUNGEST and chance.random() < SHARE:
            names.add(name, (*_kind_row(use.kind), *name_features(index, name, use)))


def _kind_row(kind: str) -> list[float]:
    return [float(each == kind) for each in KINDS]


def fit(examples: Examples, features: Sequence[str], what: str) -> LogisticModel:
    """Return the model, and print how well it does on conversations that it has not seen."""
    rows = numpy.array(examples.rows, dtype=numpy.float32)
    hits, groups = numpy.array(examples.hits), numpy.array(examples.groups)
    centre, spread = rows.mean(0), rows.std(0) + 1e-6
    scaled = (rows - centre) / spread
    guessed = numpy.zeros(len(hits))
    for train, test in GroupKFold(4).split(scaled, hits, groups):
        model = LogisticRegression(C=REGULARISATION, max_iter=80).fit(scaled[train], hits[train])
        guessed[test] = model.predict_proba(scaled[test])[:, 1]
    print(
        f"{what}: {len(hits):,} examples, {hits.mean():.2%} true; unseen conversations: "
        f"area {roc_auc_score(hits, guessed):.3f}, precision {average_precision_score(hits, guessed):.4f}"
    )
    model = LogisticRegression(C=REGULARISATION, max_iter=80).fit(scaled, hits)
    weights = model.coef_[0] / spread
    bias = float(model.intercept_[0] - (weights * centre).sum())
    rounded = {name: round(float(weight), 3) for name, weight in zip((*KINDS, *features), weights, strict=True)}
    kinds = {kind: rounded.pop(kind) for kind in KINDS}
    return LogisticModel(round(bias, 3), kinds, rounded)


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("conversations", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    conversations = [
        conversation
        for conversation in read_conversations(options.conversations)
        if conversation["stats"]["approx_tokens"] >= SMALLEST_CONVERSATION
    ]
    lines, names = collect(conversations)
    line = fit(lines, (*BLOCK_FEATURES, *LINE_FEATURES), "lines")
    weights = Weights(line, fit(names, NAME_FEATURES, "names"))
    options.output.write_text(json.dumps(msgspec.to_builtins(weights), indent=1) + "\n")


if __name__ == "__main__":
    main()
