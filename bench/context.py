"""What a context costs and what it still shows, by the context simulator over recorded conversations.

`python -m bench --part context`. Simulator and conversations lie beside the checkout; where they are absent the part is
skipped. A quick run takes four conversations at two budgets, a whole one all of them at four: some minutes.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measuring import Figure, Part, Skipped

__all__ = ["BUDGETS", "PARTS", "SHARED", "simulate"]

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
PROJECTOR = "bench.context_projector:Projector"

Row = Mapping[str, Any]

# What must hold over all conversations, by column: at 8,000, 16,000, 32,000 and 64,000 tokens.
MUST: dict[str, tuple[float, float, float, float]] = {
    "cost_vs_perfect": (0.40, 0.50, 0.58, 0.64),
    "hit_rate": (0.86, 0.90, 0.93, 0.95),
    "next_visible": (0.85, 0.90, 0.935, 0.95),
    "own_visible": (0.84, 0.89, 0.93, 0.945),
    "turns_shown": (0.88, 0.955, 0.985, 0.99),
    "recall": (0.90, 0.96, 0.99, 0.997),
    "far_recall": (0.45, 0.80, 0.95, 0.985),
}
BUDGETS = (8_000, 16_000, 32_000, 64_000)
QUICK_BUDGETS, QUICK_LIMIT = BUDGETS[:2], 4


def simulate(
    simulator: Path, data: Path, *, budgets: Iterable[int], limit: int, jobs: int, policies: str = ""
) -> list[Row]:
    """Return the simulator's figures, a row per policy and budget; ours is the policy `projector`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            "bench.context_baselines",
            str(simulator),
            "--data",
            str(data),
            "--projector",
            PROJECTOR,
            "--json",
            str(out),
        ]
        command += ["--budgets", ",".join(map(str, budgets)), "--limit", str(limit), "--jobs", str(jobs)]
        command += ["--policies", policies] if policies else []
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=sys.stderr)
        rows: list[Row] = json.loads(out.read_bytes())["rows"]
    return rows


def measure(quick: bool, _peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """Replay recorded conversations under our contexts."""
    simulator, data = SHARED / "bench" / "context" / "simulate.py", SHARED / "conversations"
    if not simulator.exists() or not data.exists():
        yield Skipped("context", "the simulator or the recorded conversations are not beside the checkout")
        return
    rows = simulate(
        simulator,
        data,
        budgets=QUICK_BUDGETS if quick else BUDGETS,
        limit=QUICK_LIMIT if quick else 0,
        jobs=os.cpu_count() or 1,
        policies="projector",  # no other policy is called so
    )
    for row in rows:
        where = f"context of {row['budget']:,} tokens, {row['conversations']} conversations"
        for column, musts in MUST.items():
            must, is_cost = musts[BUDGETS.index(row["budget"])], column == "cost_vs_perfect"
            name = column.replace("_", " ")
            if quick:  # four conversations are not all of them
                must = 2 * must if is_cost else must / 2
            yield Figure(where, name, "share", "", [row[column]], must=must, at_least=not is_cost)


PARTS = [Part("context", measure)]
