"""Install the chat and the embedded model's server into `.venv` of this checkout, and start the chat.

    python3 scripts/start.py [arguments of `dragoman chat`]

Needs Python 3.11 or later with pip. Says every second what it does: making an environment and installing packages
would be silent otherwise, for longer than a person waits.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / ".venv" / ("Scripts" if os.name == "nt" else "bin")
TELL_EVERY_SECONDS = 1.0
LONGEST_LINE = 60


def main() -> None:
    """Make the environment, install, start the chat in place of this program."""
    if sys.version_info < (3, 11):  # noqa: UP036  # the one file that an older Python may be given
        sys.exit("Dragoman needs Python 3.11 or later: start this with python3.11, python3.12 …")
    run("making .venv", [sys.executable, "-m", "venv", str(ROOT / ".venv")])
    install = ["pip", "install", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    run("installing", [str(SCRIPTS / "python"), "-m", *install, f"{ROOT}[chat,local]"])
    chat = [str(SCRIPTS / "dragoman"), "chat", *sys.argv[1:]]
    if os.name == "nt":
        sys.exit(subprocess.call(chat))
    os.execv(chat[0], chat)


def run(title: str, command: list[str]) -> None:
    """Run a command to its end, and tell every second how long it takes and what it said last; exit if it fails."""
    tell(f"{title} …")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(process.stdout or ()), daemon=True)
        reader.start()
        began = time.monotonic()
        while reader.is_alive():
            reader.join(TELL_EVERY_SECONDS)
            last = said[-1].strip()[:LONGEST_LINE] if said else "…"
            tell(f"{title} ({time.monotonic() - began:.0f} s): {last}")
    ended = "failed after" if process.returncode else "done in"
    tell(f"{title}: {ended} {time.monotonic() - began:.0f} s", ends=True)
    if process.returncode:
        sys.stderr.write("".join(said[-20:]))
        sys.exit(process.returncode)


def tell(line: str, *, ends: bool = False) -> None:
    """Write over the last line of a terminal; elsewhere, one line after the other."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{line}\x1b[K" + ("\n" if ends else ""))
    else:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
