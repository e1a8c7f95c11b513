"""`dragoman schema`."""

import argparse
import sys

from .arguments import add_common

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, print_schema)


def print_schema(_chosen: argparse.Namespace) -> None:
    """Print the JSON Schema."""
    import json

    from ..schema import json_schema

    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
