"""What a real model makes of our contexts, by the reader trial that lies beside the checkout.

`python -m bench --part reader`. With a GPU and the weights of Qwen2.5-Coder-1.5B it reads 60 points at three budgets:
minutes. On a processor it reads three short ones with SmolLM2, to show that all works. Needs `torch`, `transformers`,
`tokenizers`, `gguf` and `numpy`, which the project does not install, and weights that `dragoman local pull` fetched.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bench.context import ROOT, SHARED
from bench.measuring import Figure, Part, Skipped
from dragoman.errors import DragomanError
from dragoman.local.weights import find_weights

__all__ = ["PARTS"]

NEEDED = ("torch", "transformers", "tokenizers", "gguf", "numpy")
POLICIES = "whole,drop,clear,headtail"
OURS = "dragoman=bench.context_projector:Projector"
# What is read: with a GPU, and on a processor, where long prompts take hours.
ON_GPU = ("qwen2.5-coder", "--budgets 6000,8000,12000 --points 60")
ON_PROCESSOR = ("smollm2", "--sources tau_airline,swe_agent --least 3500 --most 5000 --budgets 2500 --points 3")

# The mean loss of each recorded message after a policy's context.
Losses = Mapping[str, Mapping[int, float]]


def measure(quick: bool, _peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """Read recorded conversations under each policy's contexts, and compare with the whole history."""
    reader = SHARED / "bench" / "context" / "reader"
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if quick or missing or not reader.exists():
        why = "a quick run reads nothing" if quick else f"not installed: {', '.join(missing)}" if missing else ""
        yield Skipped("reader", why or "the reader trial is not beside the checkout")
        return
    name, options = ON_GPU if _has_gpu() else ON_PROCESSOR
    try:
        weights = find_weights(name)
    except DragomanError as error:
        yield Skipped("reader", str(error))
        return
    losses = read(reader, weights, options.split())
    whole = losses["whole"]
    for policy in sorted(losses.keys() - {"whole"}):
        extra = [loss - whole[point] for point, loss in losses[policy].items()]
        yield Figure(f"read by {name}, {len(extra)} points", policy, "nats a token", "", [fmean(extra)])


def read(reader: Path, weights: Path, options: Sequence[str]) -> Losses:
    """Return what a model loses on the recorded messages after each policy's contexts."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, points, packed, scores = (
            Path(folder) / name for name in ("tok.json", "points.npz", "packed", "out")
        )
        _run(reader / "tokenizer.py", weights, tokenizer)
        _run(
            *(reader / "prepare.py", tokenizer, points, "--data", SHARED / "conversations"),
            *("--policies", POLICIES, "--projector", OURS, *options),
        )
        _run(reader / "pack.py", weights, packed)
        _run(reader / "score.py", packed, points, scores)
        losses: dict[str, dict[int, float]] = {}
        for line in scores.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            losses.setdefault(row["policy"], {})[row["point"]] = fmean(row["loss"])
    return losses


def _run(*command: object) -> None:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    subprocess.run(
        [sys.executable, *map(str, command)], check=True, env={**os.environ, "PYTHONPATH": path}, stdout=sys.stderr
    )


def _has_gpu() -> bool:
    asked = subprocess.run([sys.executable, "-c", "import torch; exit(not torch.cuda.is_available())"], check=False)
    return asked.returncode == 0


PARTS = [Part("reader", measure)]
