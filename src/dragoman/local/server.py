"""A llama.cpp server of our own: a child process on a loopback port that ends with us. Speaks three wire APIs.

Run as a module, this file is that child: it prints READY and its address, and ends with its standard input, so that it
never outlives the process that started it.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from ..errors import DragomanError, ErrorCode, InvalidValue, MissingExtra

__all__ = ["API_PATHS", "LocalServer"]

READY = "READY "
LARGEST_PORT = 65_535
# What llama.cpp logs: the time, the level, perhaps a component, who says it, and what. The first error is the cause.
_LOGGED_ERROR = re.compile(r"[\d.]+ E (?:\S+ +)?\S+: (.+)")

# Where each API is on the server.
API_PATHS = {"llamacpp": "/v1", "llamacpp-responses": "/v1", "llamacpp-anthropic": ""}


class LocalServer:
    """Serves one model file. Use it with `with`, or call `start` and `close`.

    `template` replaces the chat template of the file. One thread is steady on a small or busy machine.
    """

    def __init__(
        self,
        weights: str | os.PathLike[str],
        *,
        name: str | None = None,
        context_tokens: int = 4096,
        slots: int = 1,
        threads: int | None = None,
        template: str | None = None,
        port: int = 0,
    ) -> None:
        for field, value, least in (("context_tokens", context_tokens, 1), ("slots", slots, 1), ("port", port, 0)):
            if type(value) is not int or value < least:
                raise InvalidValue.of(field, value, f"a whole number from {least} up")
        if port > LARGEST_PORT:
            raise InvalidValue.of("port", port, f"at most {LARGEST_PORT}")
        self.name = name or Path(weights).stem
        self._settings = {
            "weights": str(Path(weights)),
            "name": self.name,
            "context_tokens": context_tokens,
            "slots": slots,
            "threads": threads or max(1, (os.cpu_count() or 2) // 2),
            "template": template,
            "port": port,
        }
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """The address, `http://127.0.0.1:…`; empty while it does not run."""
        return self._url

    def __enter__(self) -> "LocalServer":
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def start(self) -> str:
        """Start the server and return its address when it answers; blocks for a second or so."""
        if self._child is not None:
            return self._url
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtra("a model on this machine", "local")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the child
        command = [sys.executable, "-m", __name__, json.dumps(self._settings)]
        self._child = subprocess.Popen(  # noqa: S603  # our own words alone
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(),
            start_new_session=True,  # it must not read our terminal
        )
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith(READY.encode()):
                self._url = line.decode().removeprefix(READY).strip()
                return self._url
        said = self._last_words()
        self.close()
        raise DragomanError(f"the model's server did not start: {said}", code=ErrorCode.SERVER_ERROR)

    def close(self) -> None:
        """Stop the server. May be called again."""
        child, self._child, self._url = self._child, None, ""
        if child is not None:
            with child:
                child.terminate()
        if self._log is not None:
            self._log.close()
            self._log = None

    def base_url(self, api: str = "llamacpp") -> str:
        """Return the address of one of the server's APIs: `llamacpp`, `llamacpp-responses`, `llamacpp-anthropic`.

        `model("llamacpp:NAME", base_url=server.base_url())` is the model behind it.
        """
        if api not in API_PATHS:
            raise InvalidValue.of("api", api, f"one of {', '.join(API_PATHS)}")
        if not self._url:
            raise InvalidValue("the server does not run: start it first")
        return self._url + API_PATHS[api]

    def _last_words(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        errors = [found[1] for line in lines if (found := _LOGGED_ERROR.match(line))]
        return [*errors, *lines[-1:], "it said nothing"][0][:300]


def _environment() -> dict[str, str]:
    """The environment of the child: what it needs to start, and no keys."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TEMP", "SYSTEMROOT", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}


def serve(settings: dict[str, Any]) -> None:
    """Serve until standard input ends; what the child process does."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["weights"]
    params.model_alias = [settings["name"]]
    params.port = settings["port"]
    params.n_ctx = settings["context_tokens"]
    params.n_parallel = settings["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.use_jinja = True
    params.offline = True
    params.endpoint_metrics = True
    if settings["template"] is not None:
        params.chat_template = settings["template"]
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{READY}{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
