"""The options that `chat` and `ask` share."""

import argparse

from ..arguments import add_model, add_store, natural, real, seconds

__all__ = ["ALL_TOOLS", "APPROVALS", "add_talk_options"]

EFFORTS = ("off", "minimal", "low", "medium", "high", "max")
APPROVALS = {"as-declared": "as_declared", "always": "always", "never": "never"}
ALL_TOOLS = ""  # --tools without a folder


def add_talk_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options for the session, the model and its tools."""
    parser.add_argument("-c", "--continue", dest="goes_on", action="store_true", help="go on with the last session")
    parser.add_argument("-s", "--session", metavar="ID", help="go on with this session, or begin it; @ as -c")
    parser.add_argument(
        "--json", action="store_true", help="print the events of the run as JSON Lines; with -p or a pipe"
    )
    add_model(parser)
    add_store(parser)
    parser.add_argument("--system", metavar="TEXT", help="the system instruction")
    parser.add_argument("--think", choices=EFFORTS, help="how much the model thinks first, if it can")
    parser.add_argument("--temperature", type=real, metavar="NUMBER", help="how much chance there is")
    parser.add_argument("--max-tokens", type=natural, metavar="COUNT", help="how long an answer may get")
    folder = "a calculator, the time, and reading the files of this folder (without one, not that)"
    parser.add_argument("--tools", nargs="?", const=ALL_TOOLS, metavar="FOLDER", help=f"let the model use {folder}")
    server = "an MCP server: its name in the settings, its URL, or the command that starts it; may be repeated"
    parser.add_argument("--mcp", action="append", metavar="SERVER", help=server)
    parser.add_argument("--no-mcp", action="store_true", help="start none of the settings' MCP servers")
    parser.add_argument(
        "--approve", choices=APPROVALS, default="as-declared", help="which calls to ask about (%(default)s)"
    )
    waiting = "with -p or a pipe: wait so long for another process that runs the session (%(default)s)"
    parser.add_argument("--wait", type=seconds, default=0.0, metavar="SECONDS", help=waiting)
