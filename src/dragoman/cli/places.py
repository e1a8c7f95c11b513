"""Where a store is, as a person types it: the path of a SQLite file, or the address of a PostgreSQL database.

An address may hold a password. So no text that holds an address becomes a path, and nothing that is wrong is quoted:
parts of a password can be anywhere in an address that was not written as one.
"""

import re

from ..errors import InvalidValue, redact

__all__ = [
    "DEFAULT_SCHEMA",
    "HIDDEN",
    "checked_place",
    "is_address",
    "is_connection_string",
    "may_hold_password",
    "place_mistake",
    "read_place",
    "shown_address",
    "shown_place",
    "split_address",
]

DEFAULT_SCHEMA = "dragoman"
HIDDEN = "(an address)"  # what is shown where a text that may hold a password was given
PLACE_WORDS = (
    "the path of a SQLite file, such as notes.db without a scheme, or a postgresql:// address; "
    "a path that looks like an address begins with ./"
)
ADDRESS_WORDS = (
    "a postgresql:// address, in whose user, password, database and options the characters / @ # ? and blanks "
    "are written %2F %40 %23 %3F %20, "
    "with a number for each port and the name of a schema after a #"
)
_AROUND = " \t\r\n'\""  # what a shell script or a copied line leaves around an address
# What may come before a text that is no place: also the mark that begins a file, and the quotes of a word processor.
_BEFORE = f"{_AROUND}\ufeff\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb`"
_HOST = r"(?:\[[0-9A-Fa-f:.]*(?:%[\w.%~-]*)?\]|[\w.%~-]*)(?::\d*)?"
# libpq ends the user and the password at the first `@`. A raw `@`, `/` or `?` in a password would move part of it to
# the hosts, the database or the options. So an address has at most one `@`, and no `/` and no `?` before that.
_ADDRESS = re.compile(
    rf"(?P<scheme>postgres(?:ql)?)://"
    rf"(?:[^\s/@?]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<database>/[^\s?@#]*)?(?:\?[^\s@]*)?"
)
# The beginning of a text that can only be a path: a folder, or the drive of Windows.
_PATH = re.compile(r"(?:\.{1,2}|~[^\s/\\:@]*|[A-Za-z]:)[/\\]|/(?!/)")
# What is meant as an address: it begins with a scheme, also a mistyped one, or has a colon before an `@`, as a user and
# a password have. `postgres/data.db` is a path, `postgres//data` is none.
_LIKE_ADDRESS = re.compile(r"[^/]*://|//[^/]*[:@]|postgres(?:ql)?(?:[^\w./-]|//)|[^:]*:.*@", re.IGNORECASE | re.DOTALL)
# The beginning of a connection string of libpq, or a password in it.
_CONNECTION_STRING = re.compile(
    r"(?:host|hostaddr|port|user|password|passfile|dbname|service|sslmode)\s*=|(?:.*\s)?password\s*=",
    re.IGNORECASE | re.DOTALL,
)


def is_address(store: str) -> bool:
    """Whether a store is named by an address of a database, and not by a path."""
    return store.startswith(("postgresql://", "postgres://"))


def is_connection_string(text: str) -> bool:
    """Whether a text gives keywords and values to libpq, as `host=… dbname=…`."""
    return _CONNECTION_STRING.match(text.lstrip(_BEFORE)) is not None


def read_place(text: str) -> str:
    """Return the place that a text names: an address without blanks and quotes around it, or a path as it is."""
    stripped = text.strip(_AROUND)
    return stripped if is_address(stripped) else text


def place_mistake(text: str) -> str | None:
    """Return what a place must be, if this text is none; None if it is one."""
    place = read_place(text)
    if is_address(place):
        return _address_mistake(place)
    begun = text.lstrip(_BEFORE)
    if _PATH.match(begun):
        return None
    return PLACE_WORDS if _LIKE_ADDRESS.match(begun) or is_connection_string(text) else None


def may_hold_password(text: str) -> bool:
    """Whether a text that was given for anything may be an address, right or wrong, and so must not be quoted."""
    is_meant_as_address = is_address(read_place(text)) or place_mistake(text) is not None
    return is_meant_as_address or "@" in text.partition(":")[2]


def checked_place(text: str, named: str) -> str:
    """Return the place that an option or a variable of this name gives; raise InvalidValue if it is none."""
    mistake = place_mistake(text)
    if mistake is not None:
        raise InvalidValue(f"{named} must be {mistake}")
    return read_place(text)


def split_address(address: str) -> tuple[str, str]:
    """Return the address that a database knows, and the schema that a store's address may name after its last `#`.

    Raises InvalidValue, which quotes nothing, for what is no address.
    """
    mistake = _address_mistake(address)
    if mistake is not None:
        raise InvalidValue(f"the address of the store must be {mistake}")
    conninfo, mark, schema = address.rpartition("#")
    return (conninfo if mark else address), schema if mark and schema else DEFAULT_SCHEMA


def shown_address(address: str) -> str:
    """Return the scheme, the hosts and the database of an address: neither user nor password nor options."""
    found = _ADDRESS.fullmatch(split_address(address)[0])
    assert found is not None  # as `split_address` has checked
    return f"{found['scheme']}://{found['hosts']}{found['database'] or ''}"


def shown_place(place: str) -> str:
    """Return what a place is shown as: a path as it is, an address without what may be secret."""
    return shown_address(place) if is_address(place) else redact(place)


def _address_mistake(address: str) -> str | None:
    conninfo, mark, schema = address.rpartition("#")
    if not mark:
        conninfo, schema = address, ""
    return None if _ADDRESS.fullmatch(conninfo) and (not schema or _is_schema_name(schema)) else ADDRESS_WORDS


def _is_schema_name(name: str) -> bool:
    from ..store.postgres_schema import require_schema_name

    try:
        require_schema_name(name)
    except InvalidValue:
        return False
    return True
