"""`dragoman local`: fetch, list and serve models that run on this machine."""

import argparse
import sys
import threading
from typing import TYPE_CHECKING, Any

from ..errors import DragomanError, ErrorCode
from .arguments import add_task, add_tasks, natural
from .config import configured
from .output import Output, write_table

if TYPE_CHECKING:
    from ..local import LocalServer

__all__ = ["add_arguments", "show_progress"]

DEFAULT = "smollm2"
LOOK_EVERY = 2.0  # seconds between two checks whether the server still answers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    tasks = add_tasks(parser)
    pulling = add_task(tasks, "pull", "fetch a model's weights, and check them", pull_model)
    kinds = "a known model, hf:owner/repository/file.gguf, or an https address (%(default)s)"
    pulling.add_argument("name", nargs="?", default=DEFAULT, help=kinds)
    pulling.add_argument("--sha256", metavar="DIGITS", help="what the file's checksum must be")
    pulling.add_argument("--quiet", action="store_true", help="show no progress")
    listing = add_task(tasks, "list", "list the models that can run here, and which are fetched", list_local)
    listing.add_argument("--json", action="store_true", help="as JSON")
    serving = add_task(tasks, "serve", "serve a model on this machine alone, until it is interrupted", serve_model)
    serving.add_argument("name", nargs="?", default=DEFAULT, help="a fetched model, or a .gguf file (%(default)s)")
    serving.add_argument("--port", type=natural, default=0, help="the port, 0 for any that is free (%(default)s)")
    serving.add_argument("--context", type=natural, default=4096, metavar="TOKENS", help="its window (%(default)s)")
    serving.add_argument("--slots", type=natural, default=1, help="how many answers at once (%(default)s)")
    serving.add_argument("--threads", type=natural, help="how many threads (half of the processor's)")


def pull_model(chosen: argparse.Namespace) -> None:
    """Fetch weights, if they are not here, and print where they are."""
    from ..local import pull_weights

    tell = _silent if chosen.quiet else show_progress
    path = pull_weights(_plain(chosen.name), sha256=chosen.sha256, on_progress=tell, quiet=chosen.quiet)
    Output().line(str(path))


def show_progress(step: str, done: int, whole: int) -> None:
    """Draw how far something is, over the line before, where standard error is a terminal."""
    if not sys.stderr.isatty():
        return
    if whole:
        bar = "#" * round(20 * done / whole)
        line = f"{step} [{bar:<20}] {done / 1e6:.0f} of {whole / 1e6:.0f} MB"
    else:
        line = f"{step}: {done / 1e6:.0f} MB" if done else step
    sys.stderr.write(f"\r{line}\x1b[K")  # over what is left of a longer line
    if done >= whole if whole else not done:  # at the end, or where nothing is measured
        sys.stderr.write("\n")
    sys.stderr.flush()


def list_local(chosen: argparse.Namespace) -> None:
    """Print the known models and which of them are here."""
    from ..local.gguf import read_facts
    from ..local.weights import KNOWN_WEIGHTS, list_pulled

    output = Output(color=configured(chosen).color)
    found: list[dict[str, Any]] = [
        {
            "name": weights.name,
            "fetched": weights.is_here,
            "megabytes": round(weights.size / 1e6),
            "contextTokens": weights.context_tokens,
            "usesTools": weights.uses_tools,
            "license": weights.license,
            "path": str(weights.path),
        }
        for weights in KNOWN_WEIGHTS.values()
    ]
    for record, path in list_pulled():
        facts = read_facts(path)
        found.append(
            {
                "name": record.source,
                "fetched": True,
                "megabytes": round(record.size / 1e6),
                "contextTokens": facts.context_tokens,
                "usesTools": facts.uses_tools,
                "license": None,
                "path": str(path),
                "sha256": record.sha256,
            }
        )
    if chosen.json:
        output.json(found)
        return
    rows = [
        (
            f"local:{each['name']}",
            "yes" if each["fetched"] else "no",
            f"{each['megabytes']} MB",
            "" if each["contextTokens"] is None else f"{each['contextTokens']:,}",
            "yes" if each["usesTools"] else "no",
            str(each["license"] or ""),
        )
        for each in found
    ]
    if output.is_narrow:
        write_table(output, ("MODEL", "FETCHED", "SIZE"), [row[:3] for row in rows])
    else:
        write_table(output, ("MODEL", "FETCHED", "SIZE", "WINDOW", "TOOLS", "LICENCE"), rows, right=frozenset({2, 3}))
    output.line()
    output.line("A .gguf file of your own is local:/path/to/it.gguf", "dim")


def serve_model(chosen: argparse.Namespace) -> None:
    """Serve a model until it is interrupted; print the address when it answers."""
    from ..local import LocalServer, find_weights
    from ..local.weights import name_model

    typed = _plain(chosen.name)
    path = find_weights(typed)
    name = name_model(typed)
    server = LocalServer(
        path,
        name=name,
        context_tokens=chosen.context,
        slots=chosen.slots,
        threads=chosen.threads or None,
        port=chosen.port,
    )
    output = Output(color=configured(chosen).color)
    with server:
        output.line(server.url, "bold")
        output.line(f"speaks three APIs: openai-chat at {server.url}/v1, openai-responses there, too,", "dim")
        output.line(f"and anthropic-messages at {server.url}; the model is {name}. Ctrl-C ends it.", "dim")
        output.flush()
        try:
            _watch(server)
        except KeyboardInterrupt:
            output.line("ended")


def _watch(server: "LocalServer") -> None:
    """Wait for an interrupt; raise DragomanError when the server is gone."""
    import socket
    from urllib.parse import urlsplit

    address = urlsplit(server.url)
    forever = threading.Event()
    while not forever.wait(LOOK_EVERY):
        try:
            socket.create_connection((address.hostname or "127.0.0.1", address.port or 80), LOOK_EVERY).close()
        except ConnectionRefusedError:
            raise DragomanError("the model's server is gone", code=ErrorCode.SERVER_ERROR) from None
        except TimeoutError:
            continue  # busy, not gone


def _plain(typed: str) -> str:
    """The name of weights, which `local list` and the chat write with `local:` before it."""
    return typed.removeprefix("local:")


def _silent(_step: str, _done: int, _whole: int) -> None:
    """Show nothing."""
