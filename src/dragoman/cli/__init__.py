"""The command line: what a person types, and what is printed."""

import argparse
import json
import sys
from collections.abc import Sequence

from ..schema import json_schema

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="dragoman", description="One conversation record that any model can carry on."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("schema", help="print the JSON Schema of messages, deltas and entries")
    parser.parse_args(arguments)
    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
    return 0
