"""`dragoman ask`: one question, one answer, and the end. A pipe's text goes along."""

import argparse
import sys

from .arguments import add_common
from .chat.options import add_talk_options
from .output import warn

__all__ = ["add_arguments"]

USAGE_ERROR = 2  # as argparse ends


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, ask)
    parser.add_argument("question", nargs="*", help="what to ask; a pipe's text goes along, or is the question")
    add_talk_options(parser)


def ask(chosen: argparse.Namespace) -> int:
    """Print one answer; return the exit status."""
    from .chat.main import chat, read_piped

    question = " ".join(chosen.question)
    if not question.strip() and sys.stdin is not None and not sys.stdin.isatty():
        question = read_piped()
    if not question.strip():
        warn('what is the question? Give it: dragoman ask "…", or pipe it in')
        return USAGE_ERROR
    chosen.prompt, chosen.plain = question.strip(), True
    return chat(chosen)
