"""`python -m bench`: all that is promised about speed and size, measured in one run, each figure beside its floor.

`--quick` takes less than a minute and fails only where every round of a figure is three times beyond what must be;
without it the run takes some minutes and says what is met. `--out` writes `figures.json`, with every sample, and
`figures.svg` into a folder. `--peers` adds other libraries, each in an environment of its own that the peers
benchmark's `setup_venvs.sh` has made. `--part` chooses. What the peers benchmark is needed for is skipped where that is
not there.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import context, context_reader, core, footprint, growth, live, loop, serve, sessions, stream
from bench.clients import missing_peers
from bench.measuring import Figure, Part, Skipped, show
from bench.plotting import draw

PARTS = [*stream.PARTS, *core.PARTS, *loop.PARTS, *growth.PARTS, *sessions.PARTS, *footprint.PARTS, *context.PARTS]
PARTS += [*context_reader.PARTS, *live.PARTS, *serve.PARTS]


def measure(parts: list[Part], *, quick: bool, peers: bool) -> Iterator[Figure | Skipped]:
    """Measure one part after the other."""
    problem = missing_peers()
    names = list(stream.PEER_GOALS) if peers and problem is None else []
    for part in parts:
        if problem is not None and part in stream.PARTS:
            yield Skipped(part.name, problem)
        else:
            yield from part.measure(quick, names)
    if peers and problem is not None:
        yield Skipped("against the peers", problem)


def write(folder: Path, results: list[Figure | Skipped]) -> None:
    """Write the figures down, with where they come from."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = [result for result in results if isinstance(result, Figure)]
    report = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "figures": [figure.to_json() for figure in figures],
        "skipped": {result.row: result.reason for result in results if isinstance(result, Skipped)},
    }
    (folder / "figures.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (folder / "figures.svg").write_text(draw(figures), encoding="utf-8")
    print(f"\nwritten: {folder / 'figures.json'}, {folder / 'figures.svg'}")


def main() -> None:
    """Measure what is chosen; fail where a figure is missed, with `--quick` only where it is far off."""
    arguments = argparse.ArgumentParser(prog="python -m bench", description="Speed and size, each beside its floor")
    arguments.add_argument("--quick", action="store_true", help="a small run, which fails only far beyond what must be")
    arguments.add_argument("--peers", action="store_true", help="other libraries too, in their own environments")
    arguments.add_argument("--out", type=Path, metavar="FOLDER", help="write figures.json and figures.svg there")
    arguments.add_argument(
        "--part", action="append", choices=[part.name for part in PARTS], help="only this, again for more"
    )
    chosen = arguments.parse_args()
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # the fake provider is on this machine
    load = f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    print(f"Python {platform.python_version()}{load}; median [quartiles] of ours, of the floor, of the ratio")
    parts = [part for part in PARTS if not chosen.part or part.name in chosen.part]
    results = list(show(measure(parts, quick=chosen.quick, peers=chosen.peers)))
    if chosen.out is not None:
        write(chosen.out, results)
    figures = [result for result in results if isinstance(result, Figure)]
    failed = [figure for figure in figures if (figure.is_far_off if chosen.quick else (figure.share or 0) > 1)]
    beyond = "far beyond what must be" if chosen.quick else "beyond what must be"
    print(f"\n{len(figures)} figures, {len(failed)} {beyond}")
    for figure in failed:
        print(f"  {figure.row}: {figure.name}: {figure.middle:.3g}, {figure.wanted}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
