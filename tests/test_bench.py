"""`python -m bench`: how a figure is judged, what is written down, and what is left out where the peers are missing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.measuring import Figure
from bench.plotting import draw

ROOT = Path(__file__).parents[1]


def figure(*ratios: float, **wanted: Any) -> Figure:
    return Figure("row", "name", "µs", "the floor", [2 * ratio for ratio in ratios], [2.0] * len(ratios), **wanted)


def run_bench(*arguments: str, peers: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *arguments],
        cwd=ROOT,
        env={**os.environ, "BENCH_PEERS": str(peers)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_ratio_is_formed_within_its_round() -> None:
    slow_rounds = Figure("row", "name", "µs", "the floor", [3.0, 30.0, 3.0], [2.0, 20.0, 2.0])
    assert slow_rounds.samples == [1.5, 1.5, 1.5]


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.1, "goal met"), (1.2, "goal met"), (1.4, "must met"), (1.6, "goal/must MISSED")]
)
def test_a_figure_says_what_it_meets(ratio: float, verdict: str) -> None:
    assert figure(ratio, ratio, must=1.5, goal=1.2).verdict == verdict


def test_a_figure_for_which_nothing_is_wanted_is_not_judged() -> None:
    assert figure(9.0, 9.0).verdict == ""
    assert figure(9.0, 9.0).share is None


def test_times_cheaper_is_the_ratio_turned_round() -> None:
    cheaper = Figure("row", "name", "µs", "a peer", [2.0, 2.0], [50.0, 50.0], must=20, goal=25, at_least=True)
    assert cheaper.middle == 25.0
    assert cheaper.verdict == "goal met"
    assert cheaper.share == 0.8


@pytest.mark.parametrize(("ratio", "is_far_off"), [(1.4, False), (4.4, False), (4.6, True)])
def test_only_three_times_beyond_what_must_be_is_far_off(ratio: float, is_far_off: bool) -> None:
    assert figure(ratio, ratio, must=1.5).is_far_off is is_far_off
    assert not figure(ratio, 1.0, ratio, must=1.5).is_far_off  # it can be met, so it was noise


def test_the_picture_has_a_bar_for_every_figure_that_is_judged() -> None:
    picture = ElementTree.fromstring(draw([figure(1.0, must=1.5), figure(9.0, must=1.5, goal=1.2), figure(1.0)]))
    bars = picture.findall("{http://www.w3.org/2000/svg}rect")[1:]  # the first one is the background
    assert len(bars) == 2


def test_what_was_measured_is_written_into_the_folder(tmp_path: Path) -> None:
    run_bench("--part", "core", "--out", str(tmp_path / "out"), peers=tmp_path)
    report = json.loads((tmp_path / "out" / "figures.json").read_text(encoding="utf-8"))
    assert [written["name"] for written in report["figures"]] == ["text", "tool arguments"]
    assert all(len(written["ours"]) == 3 for written in report["figures"])
    ElementTree.parse(tmp_path / "out" / "figures.svg")


def test_what_needs_the_peers_is_skipped_without_them(tmp_path: Path) -> None:
    done = run_bench("--peers", "--part", "burst", "--part", "first", peers=tmp_path)
    assert done.stdout.count("skipped: the peers benchmark is not in") == 3
