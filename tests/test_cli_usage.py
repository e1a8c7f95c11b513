"""A command line that makes no sense: the error names the option, says what is allowed, and which help to read."""

import pytest

from dragoman.cli.arguments import LARGEST_SERIAL, LONGEST_SECONDS, LONGEST_WORD
from dragoman.history.entries import MAX_WORD
from dragoman.store.refusals import MAX_SECONDS, MAX_SERIAL
from tests.cli_cases import User, empty_user, require_words  # noqa: F401  # the fixture

DIGITS = "9" * 5_000
WORKER = ["worker", "--agents", "app:agents"]


def test_options_take_what_stores_and_entries_take() -> None:
    assert (LARGEST_SERIAL, LONGEST_SECONDS, LONGEST_WORD) == (MAX_SERIAL, MAX_SECONDS, MAX_WORD)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            [*WORKER, "--slots", DIGITS],
            "argument --slots: expected a whole number from 1 to 10,000 of at most 18 digits",
        ),
        ([*WORKER, "--slots", "10001"], "argument --slots: expected a whole number from 1 to 10,000, got '10001'"),
        ([*WORKER, "--health-port", "65536"], "argument --health-port: expected a whole number from 0 to 65,535"),
        ([*WORKER, "--stop-seconds", "1e10"], "argument --stop-seconds: expected a number from 0 to 1,000,000,000"),
        ([*WORKER, "--stop-seconds", "1_0"], "argument --stop-seconds: expected a number"),
        (["replay", "x", "--speed", "nan"], "argument --speed: expected a number from 0 up, got 'nan'"),
        (
            ["replay", "x", "--longest-wait", "1e300"],
            "argument --longest-wait: expected a number from 0 to 1,000,000,000",
        ),
        (["ask", "Hi", "--wait", "1e10"], "argument --wait: expected a number from 0 to 1,000,000,000"),
        (
            ["runs", "show", "x", "--serial", "1_0"],
            "argument --serial: expected a whole number from 0 to 2,147,483,647",
        ),
        (["runs", "show", "x", "--serial", "2147483648"], "argument --serial: expected a whole number from 0 to"),
        (["runs", "list", "--limit", " 1"], "argument --limit: expected a whole number from 0 up, got ' 1'"),
        (["runs", "list", "--limit", "\u0663"], "argument --limit: expected a whole number from 0 up"),
        (["sessions", "show", "x", "--from", DIGITS], "argument --from: expected a whole number from 0 to"),
        (["sessions", "fork", "x", "--at", "-2"], "argument --at: expected a whole number from -1 to"),
        (["sessions", "fork", "x", "--at", "1_0"], "argument --at: expected a whole number from -1 to"),
        (["models", "--window", DIGITS], "argument --window: expected a whole number from 0 up of at most 18 digits"),
        (["runs", "submit", "--agent", ""], "argument --agent: expected from 1 to 200 printable characters, got ''"),
        (["runs", "submit", "--agent", "a" * 201], "argument --agent: expected from 1 to 200 printable characters"),
        (["runs", "submit", "--agent", "a", "--key", "a\nb"], "argument --key: expected from 1 to 200 printable"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_told_with_the_option(
    user: User, arguments: list[str], words: str
) -> None:
    ended = user.run(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err
    assert len(ended.err) < 400


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runs", "submit", "--agent", "a", "--session", "", "Hi"], "--session must be"),
        (["runs", "submit", "--agent", "a", "--session", "@", "Hi"], "--session must be another name"),
        (["sessions", "fork", "a", "--id", "-"], "--id must be another name"),
        (["sessions", "import", "conversation.json", "--id", ""], "--id must be"),
        (["sessions", "verify", "a", "--head", f"{DIGITS}:{'0' * 64}"], "--head must be a serial"),
        (["sessions", "verify", "a", "--head", f"\u0663:{'0' * 64}"], "--head must be a serial"),
    ],
)
def test_a_value_that_a_command_does_not_take_is_told_with_the_option(
    user: User, arguments: list[str], words: str
) -> None:
    user.imported()
    require_words(user.run(*arguments), words)


def test_a_number_of_too_many_digits_in_a_variable_is_one_line(user: User) -> None:
    user.set("DRAGOMAN_CONTEXT_BUDGET_TOKENS", DIGITS)
    require_words(user.run("config", "show"), "DRAGOMAN_CONTEXT_BUDGET_TOKENS must be a whole number")


def test_the_empty_key_is_none(user: User) -> None:
    for _ in range(2):
        assert user.run("runs", "submit", "--agent", "a", "--key", "", "Hi").status == 0
    assert len(user.run("runs", "list", "--json").json) == 2


@pytest.mark.parametrize(
    ("arguments", "advice", "helped"),
    [
        (["runs", "submit", "--agent", "a", "-v"], "put `--` before a prompt that begins with a dash", "runs submit"),
        (["ask", "what", "does", "-v", "mean"], "put `--` before a question that begins with a dash", "ask"),
        (["sessions", "show", "-abc"], "put `--` before a session that begins with a dash", "sessions show"),
        (["runs", "abort", "x", "--reason", "-because"], "is given as --reason=-because", "runs abort"),
        (["chat", "-p", "-v"], "is given as --prompt=-v", "chat"),
        (["runs", "abort", "x", "--raeson", "y"], "did you mean '--reason'?", "runs abort"),
        (["runs", "list", "extra"], "unrecognized arguments: extra", "runs list"),
    ],
)
def test_a_value_that_looks_like_an_option_is_answered_with_how_it_is_given(
    user: User, arguments: list[str], advice: str, helped: str
) -> None:
    ended = user.run(*arguments)
    assert (ended.status, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.endswith(advice)
    assert second == f"see dragoman {helped} --help"


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "abort", "x", "--reason", "--json"],  # an option without its value
        ["runs", "abort", "x", "y"],
        ["sessions", "-x"],
        ["runs", "list", "--limit", "x", "-v"],
        ["runs", "submit", "--agent"],
    ],
)
def test_no_advice_is_given_where_there_is_none(user: User, arguments: list[str]) -> None:
    ended = user.run(*arguments)
    assert ended.status == 2
    assert "dash" not in ended.err


@pytest.mark.parametrize("prompt", ["-v", "--reason", "-1 is what?"])
def test_a_prompt_after_two_dashes_may_begin_with_one(user: User, prompt: str) -> None:
    assert user.run("runs", "submit", "--agent", "a", "--session", "s", "--", prompt).status == 0
    (entry,) = user.run("sessions", "show", "s", "--json").json_lines
    assert prompt in str(entry)


ADDRESS = "postgresql://u:s3cret@h/db"
ADDRESSES = [
    ADDRESS,
    f" {ADDRESS}\n",
    "postgresql//u:s3cret@h/db",
    "u:s3cret@h/db",
    "u:s3'cret@h/db",
    "postgresql://u:s3cret@a.host.with.a.name.that.is.longer.than.forty.characters/db",
    "PASSWORD=s3cret host=h",
    f"-x{ADDRESS}",
    f"-h{ADDRESS}",
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "before",
    [
        ["runs", "list"],
        ["runs", "list", "-store"],
        ["runs", "list", "--stores"],
        ["runs", "list", "--limit"],
        ["runs", "list", "--json"],
        ["runs"],
        ["sessions", "list"],
        ["chat", "--prompt"],
        [*WORKER, "--engine"],
        [*WORKER, "--slots"],
        [*WORKER, "--stop-seconds"],
        [*WORKER, "--log-level"],
        [],
    ],
    ids=" ".join,
)
def test_an_address_in_a_wrong_place_is_not_printed(user: User, before: list[str], address: str) -> None:
    lines = [[*before, address], [*before, address[:40]]]
    if before and before[-1].startswith("-"):
        lines += [[*before[:-1], f"{before[-1]}={each}"] for each in (address, address[:40])]
    for arguments in lines:
        ended = user.run(*arguments)
        is_help = address.startswith("-h") and ended.status == 0
        is_taken = before == ["chat", "--prompt"] and ended.status == 1
        assert ended.status == 2 or is_help or is_taken, arguments
        for secret in ("s3cret", "s3'cret", "s3\\'cret"):
            assert secret not in ended.out + ended.err, arguments


def test_a_hidden_address_leaves_the_advice(user: User) -> None:
    ended = user.run("runs", "list", f"--stores={ADDRESS}")
    words = "unrecognized arguments: --stores=(an address): did you mean '--store'?"
    assert ended.err == f"dragoman: {words}\nsee dragoman runs list --help\n"
    ended = user.run("runs", "list", "--limit", ADDRESS)
    assert ended.err.splitlines()[0].endswith(", got (an address)")
