"""`dragoman serve` as a process of its own, in front of the scripted upstream."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .upstream import Upstream

STOP_SECONDS = 20
KEY = "the-upstream-s-key"

# What answers, by wire API: a model that its vendor has, and where the API is on the upstream.
MODELS = {
    "anthropic-messages": ("anthropic", "claude-opus-4-5", ""),
    "openai-responses": ("openai", "gpt-5.2", "/v1"),
    "openai-chat": ("openai-chat", "gpt-4.1", "/v1"),
    "gemini": ("google", "gemini-2.5-pro", ""),
}


class Served(msgspec.Struct, frozen=True):
    """A gateway that runs: where it is asked, and where it records. `log` is what it says on standard error."""

    url: str
    store: Path
    log: Path
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End it as a crash of the machine does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(
    upstream: Upstream, behind: str, folder: Path, *, port: int = 0, is_replay: bool = False
) -> Iterator[Served]:
    """Run a gateway that asks a model of the API `behind`, whatever a client calls it, or answers from its record."""
    provider, model, path = MODELS[behind]
    home, store, log = folder / "gateway", folder / "record.db", folder / "gateway.log"
    settings = home / ".config" / "dragoman" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f'[providers.{provider}]\nbase_url = "{upstream.url}{path}"\nkey_variable = "UPSTREAM_KEY"\n')
    command = [sys.executable, "-m", "dragoman", "serve", "--port", str(port)]
    command += ["--replay", str(store)] if is_replay else ["--store", str(store), "--model", f"*={provider}:{model}"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "UPSTREAM_KEY": KEY, "PYTHONFAULTHANDLER": "1"}
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            address = re.search(r"http://\S+", said)
            if address is None:
                raise RuntimeError(f"the gateway did not start: {said}{log.read_text(encoding='utf-8')[-2000:]}")
            yield Served(address[0], store, log, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
