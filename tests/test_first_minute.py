"""The README's first command tells what it does; the script that measures its silences tells the truth."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
WAITS = "import sys; print('first words', flush=True); sys.stdin.read(); open({!r}).read(); print('last words')"


def measured(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPTS / "measure_silence.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_silence_is_told_with_the_words_before_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, str(SCRIPTS / "measure_silence.py"), sys.executable, "-c", WAITS.format(str(pipe))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first words\n"
        pipe.write_text("go on")  # returns when the command has opened it
        said = process.stdout.read()
    assert process.returncode == 0
    assert said.startswith("last words\n")
    assert "s after 'first words', " in said.splitlines()[-1] or "s after 'last words', " in said.splitlines()[-1]


def test_a_limit_that_is_broken_is_a_failure_and_else_the_status_is_the_commands() -> None:
    says = (sys.executable, "-c", "print('hello', flush=True); raise SystemExit(3)")
    assert measured(*says).returncode == 3
    assert measured("--longest", "1000", "--first", "1000", *says).returncode == 3
    assert measured("--first", "0", *says).returncode == 1
    assert measured("--longest", "0", *says).returncode == 1


def test_a_step_that_fails_tells_what_it_said(capfd: pytest.CaptureFixture[str]) -> None:
    run = runpy.run_path(str(SCRIPTS / "start.py"))["run"]
    run("counting", [sys.executable, "-c", "print('one')"])
    with pytest.raises(SystemExit) as ended:
        run("failing", [sys.executable, "-c", "print('the reason'); raise SystemExit(7)"])
    assert ended.value.code == 7
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "counting …"
    assert said[-1] == "the reason"
    assert any(line.startswith("failing: failed after") for line in said)
