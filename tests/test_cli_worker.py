"""`dragoman worker`: what it says of a registry that is wrong."""

import pytest

from tests.cli_cases import User, empty_user, require_words  # noqa: F401  # the fixture

SECRET = "sk-planted-5d21-not-to-be-shown"
EMPTY = "from dragoman.durable import Agents\nagents = Agents({})\n"


# ---------------------------------------------------------------- the registry


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import os\nKEY = os.environ['SHOP_KEY']", "KeyError at app.py:2: the environment variable 'SHOP_KEY' is not"),
        ("x = 1\ndef f(:\n", "SyntaxError at app.py:2; --debug"),
        ("from json import nothing", "ImportError at app.py:1; --debug"),
        (f"raise ValueError('{SECRET}')", "ValueError at app.py:1; --debug"),
        (f"{{}}['{SECRET}']", "KeyError at app.py:1; --debug"),
        (f"import sys\nsys.exit('{SECRET}')", "SystemExit at app.py:2; --debug"),
        ("import json\njson.loads('{')", "json.decoder.JSONDecodeError at app.py:2; --debug"),
        ("import part", "ZeroDivisionError at part.py:2; --debug"),
        (
            "from dragoman.durable import Agents\nagents = Agents({'a': 5})",
            "InvalidValue at app.py:2: agent 'a' must be",
        ),
        ("raise ModuleNotFoundError", "ModuleNotFoundError at app.py:1; --debug"),
    ],
)
def test_a_mistake_in_the_users_module_is_told_with_its_type_and_its_place(user: User, module: str, words: str) -> None:
    user.write("app.py", f"{module}\n")
    user.write("part.py", "\n1 / 0\n")
    ended = user.process("worker", "--agents", "app:agents")
    require_words(ended, words)
    assert ended.err.startswith("dragoman: --agents app:agents: importing app raised ")
    assert "mistake in dragoman" not in ended.err
    assert SECRET not in ended.err


def test_debug_shows_the_traceback_of_the_users_module(user: User) -> None:
    user.write("app.py", "raise ValueError('the words')\n")
    ended = user.process("worker", "--agents", "app:agents", "--debug")
    assert ended.status == 1
    assert "Traceback" in ended.err
    assert "ValueError: the words" in ended.err
    assert ended.err.splitlines()[-1].startswith("dragoman: --agents app:agents: importing app raised ValueError")


@pytest.mark.parametrize("named", ["..:x", ".app:x", "app.:x", "a..b:x", ":x", "app:"])
def test_a_name_that_no_module_has_is_refused(user: User, named: str) -> None:
    require_words(user.run("worker", "--agents", named), "--agents must be a module and a name in it")
