"""Figures: what was measured in rounds, beside its floor in the same rounds, and how it stands to what is wanted."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

__all__ = ["Figure", "Part", "Skipped", "quartiles", "say", "show", "spread"]

FAR_OFF = 3.0  # times what must be: noise of a busy machine does not reach that, a regression does


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `ours` and `floors` hold a sample per round; what counts is the ratio within a round.

    Without `floors` the samples themselves count, in `unit`. With `at_least`, ours is to be so many times cheaper than
    what `floor` names, and the ratio is turned round.
    """

    row: str
    name: str
    unit: str
    floor: str
    ours: Sequence[float]
    floors: Sequence[float] = ()
    must: float | None = None
    goal: float | None = None
    at_least: bool = False

    @property
    def samples(self) -> list[float]:
        """What counts: a ratio per round, or the figure itself."""
        if not self.floors:
            return list(self.ours)
        pairs = zip(self.ours, self.floors, strict=True)
        return [floor / ours if self.at_least else ours / floor for ours, floor in pairs]

    @property
    def middle(self) -> float:
        """The median of the samples."""
        return median(self.samples)

    @property
    def share(self) -> float | None:
        """How much of what must be it takes: 1 is just met, less is better. None where nothing must be."""
        if self.must is None:
            return None
        return self.must / self.middle if self.at_least else self.middle / self.must

    @property
    def is_far_off(self) -> bool:
        """Whether even its best round misses what must be by so much that noise does not explain it."""
        if self.must is None:
            return False
        return self.must / max(self.samples) > FAR_OFF if self.at_least else min(self.samples) / self.must > FAR_OFF

    @property
    def verdict(self) -> str:
        """What is met, in words; empty where nothing is wanted."""
        met = {word: self._meets(wanted) for word, wanted in (("goal", self.goal), ("must", self.must)) if wanted}
        if not met:
            return ""
        return next((f"{word} met" for word, is_met in met.items() if is_met), f"{'/'.join(met)} MISSED")

    @property
    def wanted(self) -> str:
        """What must be and what is hoped for."""
        sign = "≥" if self.at_least else "≤"
        said = (f"{word} {sign} {wanted:g}" for word, wanted in (("must", self.must), ("goal", self.goal)) if wanted)
        return ", ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Return all that is known, with every sample."""
        low, middle, high = quartiles(self.samples)
        return {
            "row": self.row,
            "name": self.name,
            "unit": self.unit,
            "floor": self.floor,
            "must": self.must,
            "goal": self.goal,
            "atLeast": self.at_least,
            "median": middle,
            "quartiles": [low, high],
            "verdict": self.verdict,
            "ours": list(self.ours),
            "floors": list(self.floors),
        }

    def _meets(self, wanted: float) -> bool:
        return self.middle >= wanted if self.at_least else self.middle <= wanted


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that could not be measured here, and why."""

    row: str
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """A name to choose it by, and what measures it: few rounds if `quick`, the peers' clients beside ours if named."""

    name: str
    measure: Callable[[bool, Sequence[str]], Iterable[Figure | Skipped]] = field(repr=False)


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    low, middle, high = quantiles(samples, n=4)
    return low, middle, high


def spread(samples: Sequence[float]) -> str:
    """Return median and quartiles."""
    low, middle, high = quartiles(samples)
    digits = 2 if high < 100 else 0
    return f"{middle:5.{digits}f} [{low:4.{digits}f} to {high:4.{digits}f}]"


def say(label: str, samples: Sequence[float], unit: str, goal: float | None = None, *, at_least: bool = False) -> bool:
    """Print one line: median, quartiles and, where there is one, the goal; return whether that is met."""
    low, middle, high = quartiles(samples)
    met = goal is None or (middle >= goal if at_least else middle <= goal)
    verdict = "" if goal is None else f"   goal {'≥' if at_least else '≤'} {goal:g}: {'met' if met else 'MISSED'}"
    print(f"  {label:<42} {middle:9.3f} {unit:<3} quartiles {low:.3f} to {high:.3f}{verdict}", flush=True)
    return met


def show(figures: Iterable[Figure | Skipped]) -> Iterator[Figure | Skipped]:
    """Print each as it comes, under the head of its row, and hand it on."""
    row = ""
    for figure in figures:
        if isinstance(figure, Skipped):
            print(f"\n{figure.row}\n  skipped: {figure.reason}", flush=True)
        else:
            if figure.row != row:
                against = f"; ratio to {figure.floor}" if figure.floors and not figure.at_least else ""
                print(f"\n{figure.row} ({figure.unit}{against})", flush=True)
            columns = [spread(figure.ours), *((spread(figure.floors), spread(figure.samples)) if figure.floors else ())]
            shown = "   ".join(f"{column:<24}" for column in columns)
            wanted = f"{figure.wanted}: {figure.verdict}" if figure.verdict else ""
            print(f"  {figure.name:<34} {shown} {wanted}".rstrip(), flush=True)
        row = figure.row
        yield figure
