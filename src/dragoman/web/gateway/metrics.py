"""Counts of the gateway, and the page that tells them in Prometheus' text format. No content, no session ids."""

from collections.abc import Callable

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES = 500  # of one counter; clients choose some of the labels
OTHER = "(other)"
_COUNTERS = {
    "dragoman_requests_total": "Requests by front, way (passed, translated, replayed, refused, others) and status.",
    "dragoman_tokens_total": "Tokens by model and kind.",
    "dragoman_cost_dollars_total": "Cost by model, as far as it is known.",
    "dragoman_cut_answers_total": "Answers that ended early, by front and cause. Refusals are none.",
    "dragoman_failed_models_total": "Models that were to answer and failed, by model and error code.",
    "dragoman_store_faults_total": "Requests or answers that could not be recorded.",
    "dragoman_answer_seconds_total": "Seconds that requests took, by front.",
}
_GAUGES = {
    "dragoman_answers_under_way": "Answers that are being given.",
    "dragoman_held_body_bytes": "Bytes of the requests under way.",
}
_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters by name and labels, and how much is under way."""

    def __init__(self) -> None:
        self.under_way = 0
        self.held: Callable[[], int] = lambda: 0
        self._counters: dict[str, dict[_Labels, float]] = {name: {} for name in _COUNTERS}
        self._counters["dragoman_store_faults_total"][()] = 0

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter. Once it has SERIES series, new labels count as `(other)`."""
        series = self._counters[name]
        key = tuple(labels.items())
        if key not in series and len(series) >= SERIES:
            key = tuple((label, OTHER) for label in labels)
        series[key] = series.get(key, 0) + amount

    def page(self) -> str:
        """Return the page."""
        lines = []
        for name, now in zip(_GAUGES, (self.under_way, self.held()), strict=True):
            lines += [f"# HELP {name} {_GAUGES[name]}", f"# TYPE {name} gauge", f"{name} {now}"]
        for name, series in self._counters.items():
            lines += [f"# HELP {name} {_COUNTERS[name]}", f"# TYPE {name} counter"]
            for labels, amount in sorted(series.items()):
                told = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels)
                lines.append(f"{name}{{{told}}} {amount!r}" if told else f"{name} {amount!r}")
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
