"""Keys for tests of who may use a gateway: two people, and the fields in which clients send a key."""

from typing import Any

from dragoman.web.gateway.keys import Keys, ServeKey
from tests.gateway_stage import Told, line

ALICE = "alice-has-a-long-key"
BOB = "bob-has-another-key"
KEYS = Keys([ServeKey.of("alice", ALICE), ServeKey.of("bob", BOB)])
FIELDS = {
    "bearer": f"Authorization: Bearer {ALICE}",
    "lower case": f"authorization: bearer {ALICE}",
    "x-api-key": f"x-api-key: {ALICE}",
    "x-goog-api-key": f"x-goog-api-key: {ALICE}",
    "both": f"Authorization: Bearer of-another-vendor\r\nx-api-key: {ALICE}",
}


def limited(**limits: Any) -> Keys:
    """Return one key with limits."""
    return Keys([ServeKey.of("alice", ALICE, **limits)])


async def told(port: int, request: bytes) -> Told:
    """Send a request, and return an answer that has a length."""
    async with line(port) as connection:
        await connection.send(request)
        return await connection.answer()


async def status(port: int, request: bytes) -> int:
    """Send a request, and return the status of whatever answer."""
    async with line(port) as connection:
        await connection.send(request)
        return int((await connection.reader.readline()).split()[1])
