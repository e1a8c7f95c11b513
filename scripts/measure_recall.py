"""Computes what `recall` costs: offered in every request, and offered from the first epoch on, as contexts do it.

`python scripts/measure_recall.py` replays the recorded conversations that lie beside the checkout and bills each
request by the simulator's rules for Anthropic's cache. Instruction and the agent's own tools count 4,000 tokens.
"""

import argparse
import importlib.util
import multiprocessing
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from bench.context import BUDGETS, SHARED  # noqa: E402  # found through the line before
from bench.context_projector import Projector, read_conversations  # noqa: E402

from dragoman.context import RECALL_TOOL, ContextManager, EstimateCounter  # noqa: E402

PREFIX_TOKENS = 4_000
RECALL_TOKENS = ContextManager(counter=EstimateCounter(4)).estimate_tokens((), tools=(RECALL_TOOL,))


def load_simulator() -> Any:
    """Return the simulator as a module."""
    spec = importlib.util.spec_from_file_location("simulate", SHARED / "bench" / "context" / "simulate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bill(given: tuple[dict[str, Any], int]) -> Counter[str]:
    """Return the cost of one conversation in input tokens: without `recall`, always with it, from the first epoch."""
    conversation, budget = given
    simulator = load_simulator()
    recorded, projector = simulator.Conv(conversation), Projector(budget)
    banks = {name: simulator.Anthropic() for name in ("never", "always", "first epoch")}
    sums: Counter[str] = Counter(conversations=1)
    fed, clock, has_epoch = 0, 0.0, False
    for place, *_ in recorded.turns:
        stamp = next((time for time in recorded.times[max(place - 1, 0) : place + 1] if time is not None), None)
        clock = max(clock, stamp) if stamp is not None else clock + 10.0
        for message in recorded.messages[fed:place]:
            projector.append(message)
        fed = place
        request = [simulator.render_message(message) for message in projector.render()]
        has_epoch = has_epoch or projector.has_epoch
        sums["calls"] += 1
        sums["calls before an epoch"] += not has_epoch
        for name, bank in banks.items():
            offered = name == "always" or (name == "first epoch" and has_epoch)
            prefix = simulator.Out("system", f"{offered}", tokens=PREFIX_TOKENS + RECALL_TOKENS * offered, blocks=1)
            sums[name] += bank.bill([prefix, *request], clock, [mark + 1 for mark in projector.breakpoints()])[3]
    sums["with an epoch"] += has_epoch
    return sums


def main() -> None:
    """Print the sums for each budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    conversations = list(read_conversations(SHARED / "conversations"))
    print(f"recall is {RECALL_TOKENS} tokens")
    with multiprocessing.Pool(options.jobs) as pool:
        for budget in options.budgets:
            sums: Counter[str] = Counter()
            for each in pool.imap_unordered(bill, ((one, budget) for one in conversations)):
                sums.update(each)
            least = sums["never"]
            shares = {name: sums[name] / least - 1 for name in ("always", "first epoch")}
            print(f"{budget}: {dict(sums)}, " + ", ".join(f"{name} {share:+.3%}" for name, share in shares.items()))


if __name__ == "__main__":
    main()
