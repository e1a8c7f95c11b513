"""A llama.cpp server as a child process on a loopback port. It speaks three wire APIs and ends with its parent.

Run as a module, this file is that child: it prints READY and its address. It ends when its standard input does, or when
its parent is gone: the system closes the pipe of a killed parent, but a process that this parent forked may hold it.
"""

import atexit
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from ..errors import DragomanError, ErrorCode, InvalidValue, MissingExtra

__all__ = ["API_PATHS", "LocalServer", "shared_server"]

READY = "READY "
LARGEST_PORT = 65_535
PARENT_CHECK_SECONDS = 1.0  # how often the child looks whether its parent is still there
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
        self._starting = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._url = ""

    def __repr__(self) -> str:
        return f"<LocalServer {self.name} {self._url or 'not running'}>"

    @property
    def url(self) -> str:
        """The address, `http://127.0.0.1:…`; empty while it does not run."""
        return self._url

    @property
    def is_running(self) -> bool:
        """Whether the server process is there, and has answered."""
        child = self._child
        return bool(self._url) and child is not None and child.poll() is None

    def __enter__(self) -> "LocalServer":
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def start(self) -> str:
        """Return the address when the server answers, and start it if it does not run. Blocks; any thread may call."""
        with self._starting:
            if self.is_running:
                return self._url
            self.close()
            if importlib.util.find_spec("xllamacpp") is None:
                raise MissingExtra("a model on this machine", "local")
            with tempfile.TemporaryFile() as log:
                settings = {**self._settings, "parent": os.getpid()}
                self._child = child = subprocess.Popen(  # noqa: S603  # our own words alone
                    [sys.executable, "-m", __name__, json.dumps(settings)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=_environment(),
                    start_new_session=True,  # it must neither read our terminal nor get its Ctrl-C
                )
                assert child.stdout is not None
                for line in child.stdout:
                    if line.startswith(READY.encode()):
                        self._url = line.decode().removeprefix(READY).strip()
                        return self._url
                self.close()
                said = _last_words(log)
            raise DragomanError(
                f"the model's server did not start: {said}", code=ErrorCode.SERVER_ERROR, retryable=False
            )

    def close(self) -> None:
        """Stop the server. May be called again."""
        child, self._child, self._url = self._child, None, ""
        if child is not None:
            with child:
                child.terminate()

    def base_url(self, api: str = "llamacpp") -> str:
        """Return the address of one of the server's APIs: `llamacpp`, `llamacpp-responses`, `llamacpp-anthropic`.

        `model("llamacpp:NAME", base_url=server.base_url())` is the model behind it.
        """
        if api not in API_PATHS:
            raise InvalidValue.of("api", api, f"one of {', '.join(API_PATHS)}")
        if not self._url:
            raise InvalidValue("the server does not run: start it first")
        return self._url + API_PATHS[api]


# ---------------------------------------------------------------- one server for all who want the same weights

_shared: dict[tuple[Any, ...], LocalServer] = {}
_sharing = threading.Lock()


def shared_server(
    weights: str | os.PathLike[str], *, context_tokens: int = 4096, template: str | None = None
) -> LocalServer:
    """Return the running server of these weights, the same for everyone in this process who names the same file.

    It starts if it does not run yet, or no longer. It ends with this process, however that ends. Blocks; any thread
    may call.
    """
    path = Path(weights).resolve()
    key = (path, context_tokens, template)
    with _sharing:
        if not _shared:
            atexit.register(close_shared_servers)
        server = _shared.get(key)
        if server is None:
            server = _shared[key] = LocalServer(path, context_tokens=context_tokens, template=template)
    server.start()
    return server


def close_shared_servers() -> None:
    """Stop every shared server of this process. The next one that is asked for starts again."""
    with _sharing:
        servers = list(_shared.values())
        _shared.clear()
    for server in servers:
        server.close()


def _forget_shared_servers() -> None:
    """Forget the servers of the parent in a forked process, which starts its own: the others end with the parent."""
    global _shared, _sharing, _of_parent  # a lock that another thread held is held for ever here
    _of_parent, _shared, _sharing = _shared, {}, threading.Lock()


_of_parent: dict[tuple[Any, ...], LocalServer] = {}  # kept: their child processes are not of this process
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_shared_servers)


# ---------------------------------------------------------------- the child process


def _last_words(log: IO[bytes]) -> str:
    """What the child says of its end: the first error that it logged, else its last line."""
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    errors = [found[1] for line in lines if (found := _LOGGED_ERROR.match(line))]
    return [*errors, *lines[-1:], "it said nothing"][0][:300]


def _environment() -> dict[str, str]:
    """The environment of the child: what it needs to start, and no keys."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TEMP", "SYSTEMROOT", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}


def serve(settings: dict[str, Any]) -> None:
    """Serve until the parent is gone; what the child process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the parent
    threading.Thread(target=_end_with_input, daemon=True).start()  # before the load: a parent may end meanwhile
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
    _discard_output()
    while os.getppid() == settings["parent"]:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(0)


def _end_with_input() -> None:
    while os.read(0, 1):  # not by `sys.stdin`, whose lock a failing interpreter needs at its end
        pass
    os._exit(0)  # not by an exception: a request may be under way, and its thread in C++


def _discard_output() -> None:
    """Write what llama.cpp says of each request nowhere: its parent reads nothing after READY."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
