"""Where a store is: no text that holds a password becomes a path or is printed; every address is read as one."""

import pytest

from dragoman.cli.places import place_mistake, read_place, shown_address, split_address
from dragoman.errors import InvalidValue
from tests.cli_cases import User, empty_user, require_words  # noqa: F401  # the fixture

SECRET = "Planted77"
NO_PLACES = [
    f'x"postgresql://u:{SECRET}@127.0.0.1:1/db',
    f"POSTGRESQL://u:{SECRET}@127.0.0.1:1/db",
    f"\ufeffpostgresql://u:{SECRET}@127.0.0.1:1/db",
    f"DRAGOMAN_STORE=postgresql://u:{SECRET}@127.0.0.1:1/db",
    f"mysql://u:{SECRET}@127.0.0.1:1/db",
    f"postgresql:/u:{SECRET}@127.0.0.1:1/db",
    f"'postgres:u:{SECRET}@127.0.0.1:1/db",
    f"user:{SECRET}@127.0.0.1:1/db",
    f"'host=127.0.0.1 password={SECRET}",
    f"connect_timeout=5 password = {SECRET}",
    f"\ufeffhost=127.0.0.1 password={SECRET}",
    f"DRAGOMAN_STORE=postgresql://127.0.0.1:1/db?password={SECRET}",
    f"://u:{SECRET}@127.0.0.1:1/db",
    f"//u:{SECRET}@127.0.0.1:1/db",
]
LIKE_ADDRESSES = ["notes:2024@home.db", "my password=x.db", "postgres:notes.db", "host=a.db", "http://x/notes.db"]
NO_ADDRESSES = [
    f"postgresql://u:pa#{SECRET}!x@127.0.0.1:1/db",
    f"postgresql://u:pa#{SECRET}@127.0.0.1:1/db#Schema",
    f"postgresql://u:pa/{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:pa@{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:pa {SECRET}@127.0.0.1:1/db",
    f"postgresql://u:pa\n{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET}/db",
    f"postgresql://u:12/{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:top@{SECRET}/ret@127.0.0.1:1/db",
    f"postgresql://u:top@{SECRET}?ret@127.0.0.1:1/db",
    f"postgresql://u:top@127.0.0.1:1/{SECRET}?ret@127.0.0.1:1/db",
    f"postgresql://u:top@{SECRET}!x/db",
    f"postgresql://u:top@{SECRET}#ret/x@127.0.0.1:1/db#own",
    f"postgresql://u:top@127.0.0.1:1/db#{SECRET}#own",
    f"postgresql://u:top@[{SECRET}]/db",
    f"postgresql://u:12/top?{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:12?{SECRET}@127.0.0.1:1/db",
    f"postgresql://127.0.0.1:1?user=u&password=se@{SECRET}",
    f"postgresql://127.0.0.1:1/db?user=u&password=se@{SECRET}",
    f"postgresql://127.0.0.1:1/{SECRET}@db",
    f"postgresql://u@127.0.0.1:1/{SECRET}@db",
    f"postgresql//u:{SECRET}@127.0.0.1:1/db",
    f"postgres//u:{SECRET}@127.0.0.1:1/db",
    f"postgres//127.0.0.1/db?password={SECRET}",
    f"postgresql;//u:{SECRET}@127.0.0.1:1/db",
    f"postgresql;//127.0.0.1/db?password={SECRET}",
    f"postgresql=//u:{SECRET}@127.0.0.1:1/db",
    f"u:{SECRET}@127.0.0.1:1/db",
    f"user:pa {SECRET}@127.0.0.1:1/db",
    f"user:pa\n{SECRET}@127.0.0.1:1/db",
    f"user:pa/{SECRET}@127.0.0.1:1/db",
    f"\u201cpostgresql://u:{SECRET}@127.0.0.1:1/db\u201d",
    f"\u2018postgresql//127.0.0.1/db?password={SECRET}\u2019",
    f"\u201cpassword={SECRET} host=127.0.0.1\u201d",
    f"PASSWORD={SECRET} host=127.0.0.1",
    f"connect_timeout=5 Password={SECRET}",
]
COMMANDS = [
    ("sessions", "list"),
    ("sessions", "migrate"),
    ("runs", "list"),
    ("runs", "submit", "--agent", "a", "Hello"),
    ("config", "show"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("text", NO_PLACES + NO_ADDRESSES)
def test_a_text_that_may_hold_a_password_is_neither_printed_nor_a_path(
    user: User, text: str, command: tuple[str, ...]
) -> None:
    user.set("DRAGOMAN_STORE", text)
    ended = user.run(*command)
    require_words(ended, "DRAGOMAN_STORE must be", "a postgresql:// address")
    assert SECRET not in ended.out + ended.err
    assert list(user.folder.iterdir()) == []


@pytest.mark.parametrize("text", NO_PLACES + NO_ADDRESSES)
def test_options_and_other_variables_are_read_as_the_setting_is(user: User, text: str) -> None:
    user.set("DRAGOMAN_POSTGRES", text)
    commands = [
        ("sessions", "list", "--store", text),
        ("serve", "--replay", text),
        ("doctor", "--store", text),
        ("doctor", "--store", text, "--json"),
        ("sessions", "migrate"),
    ]
    for command in commands:
        ended = user.run(*command)
        assert ended.status == 1
        assert SECRET not in ended.out + ended.err, command
    assert list(user.folder.iterdir()) == []


@pytest.mark.parametrize("around", ["{}", '"{}', "'{}'", " {}", "\n{}\n", '\t"{}" '])
def test_blanks_and_quotes_around_an_address_are_not_of_it(user: User, around: str) -> None:
    user.set("DRAGOMAN_STORE", around.format(f"postgresql://u:{SECRET}@127.0.0.1:1/db"))
    ended = user.run("sessions", "list")
    require_words(ended, "PostgreSQL cannot be reached")
    assert SECRET not in ended.err
    assert user.run("config", "show").out.startswith('store = "postgresql://127.0.0.1:1/db"')


@pytest.mark.parametrize("options", ["password=ab77", "%70assword=ab77", "scram_client_key=ab77", "user=ab77"])
def test_no_command_prints_the_options_of_an_address(user: User, options: str) -> None:
    user.set("DRAGOMAN_STORE", f"postgresql://127.0.0.1:1/db?{options}")
    for command in [("config", "show"), ("doctor",), ("doctor", "--json"), ("sessions", "list")]:
        ended = user.run(*command)
        assert "ab77" not in ended.out + ended.err, command


@pytest.mark.parametrize(
    ("address", "parts", "shown"),
    [
        ("postgresql://u:p@host/db", ("postgresql://u:p@host/db", "dragoman"), "postgresql://host/db"),
        ("postgres://u@host:5432/db#", ("postgres://u@host:5432/db", "dragoman"), "postgres://host:5432/db"),
        ("postgresql://host/db#own", ("postgresql://host/db", "own"), "postgresql://host/db"),
        ("postgresql://u:p#q@host/db#own", ("postgresql://u:p#q@host/db", "own"), "postgresql://host/db"),
        ("postgresql://u:p%23q@host/db", ("postgresql://u:p%23q@host/db", "dragoman"), "postgresql://host/db"),
        ("postgresql://u:p%3Fq@host/db", ("postgresql://u:p%3Fq@host/db", "dragoman"), "postgresql://host/db"),
        ("postgresql://%2Ftmp/my%40db", ("postgresql://%2Ftmp/my%40db", "dragoman"), "postgresql://%2Ftmp/my%40db"),
        (
            "postgresql://[fe80::1%eth0]/db",
            ("postgresql://[fe80::1%eth0]/db", "dragoman"),
            "postgresql://[fe80::1%eth0]/db",
        ),
        (
            "postgresql:///db?host=/tmp&user=a%40b",
            ("postgresql:///db?host=/tmp&user=a%40b", "dragoman"),
            "postgresql:///db",
        ),
        ("postgresql://u@/db?host=/tmp/x#s1", ("postgresql://u@/db?host=/tmp/x", "s1"), "postgresql:///db"),
        ("postgresql://a:1,[::1]:2/db", ("postgresql://a:1,[::1]:2/db", "dragoman"), "postgresql://a:1,[::1]:2/db"),
        ("postgresql://", ("postgresql://", "dragoman"), "postgresql://"),
    ],
)
def test_an_address_is_split_at_its_last_number_sign_and_shown_without_its_user(
    address: str, parts: tuple[str, str], shown: str
) -> None:
    assert place_mistake(address) is None
    assert split_address(address) == parts
    assert shown_address(address) == shown


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_an_address_that_is_none_is_not_split(text: str) -> None:
    with pytest.raises(InvalidValue, match="the address of the store must be") as caught:
        split_address(text)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "notes.db",
        "/data/a@b.db",
        "C:\\data\\a@b.db",
        "./x=1.db",
        "~/of me/notes.db",
        "#.db",
        "postgres/data.db",
        "a:b.db",
    ],
)
def test_a_path_stays_as_it_is(path: str) -> None:
    assert place_mistake(path) is None
    assert read_place(path) == path


@pytest.mark.parametrize(
    "path", ["dir/http://x/notes.db", "/data/my password=x.db", "C://data/a:b@c.db", "~/ab:c@d.db"]
)
def test_a_path_in_a_folder_is_no_address(path: str) -> None:
    assert place_mistake(path) is None


@pytest.mark.parametrize("path", LIKE_ADDRESSES)
def test_a_path_that_looks_like_an_address_begins_with_a_dot_and_a_slash(user: User, path: str) -> None:
    user.set("DRAGOMAN_STORE", path)
    require_words(user.run("sessions", "list"), "a path that looks like an address begins with ./")
    for start in ("./", "../"):
        assert place_mistake(f"{start}{path}") is None
    user.set("DRAGOMAN_STORE", f"./{path}")
    require_words(user.run("runs", "list"), "there is no store at")


def test_a_session_is_kept_in_a_file_whose_name_looks_like_an_address(user: User) -> None:
    session = user.imported([{"role": "user", "content": "Hi"}], "--store", "./notes:2024@home.db")
    assert (user.folder / "notes:2024@home.db").is_file()
    assert user.run("sessions", "list", "--store", "./notes:2024@home.db", "--json").json[0]["id"] == session


def test_a_long_text_is_read_in_linear_time() -> None:
    assert place_mistake(f"postgresql://{'a,' * 50_000}@x@y") is not None
    assert place_mistake(f"postgresql://{'a' * 100_000}:b") is not None
    assert place_mistake("a " * 50_000) is None
    assert place_mistake(f"//{'a' * 100_000}") is None
    assert place_mistake(f"~{'a' * 100_000}") is None
