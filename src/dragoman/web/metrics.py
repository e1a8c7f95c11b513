"""Counts of the gateway, and the page that tells them in Prometheus' text format. No content, no session ids."""

from collections import Counter

__all__ = ["Metrics"]

_HELP = {
    "dragoman_requests_total": "Requests by front, way (passed, translated, replayed, refused) and status.",
    "dragoman_tokens_total": "Tokens by model and kind.",
    "dragoman_cost_dollars_total": "Cost by model, as far as it is known.",
    "dragoman_cut_answers_total": "Answers that ended early, by front and cause.",
    "dragoman_store_faults_total": "Requests or answers that could not be recorded.",
    "dragoman_answer_seconds_total": "Seconds that answers took, by front.",
}


class Metrics:
    """Counters by name and labels, and how many answers are under way."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self.under_way = 0

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._counts[name, tuple(sorted(labels.items()))] += amount  # type: ignore[assignment]  # seconds are no ints

    def page(self) -> str:
        """Return the page."""
        lines = ["# TYPE dragoman_answers_under_way gauge", f"dragoman_answers_under_way {self.under_way}"]
        for name, words in _HELP.items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} counter"]
            for (counted, labels), amount in sorted(self._counts.items()):
                if counted == name:
                    told = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels)
                    lines.append(f"{name}{{{told}}} {amount:g}" if told else f"{name} {amount:g}")
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
