"""The one table of wire APIs: what a row must bring along, and that nothing is judged by another row's measure."""

import re
from collections.abc import Iterator
from importlib import import_module

import pytest

from dragoman.context.tokens import OVERHEADS
from dragoman.wire import PROVIDERS, WIRE_APIS, WireApi, find_codec, find_dialect, find_provider
from tests.corpus import PROTOCOLS, body_of, needs_corpus, records
from tests.valid_requests import VALID
from tests.wire_samples import KITS

# A request that each API takes.
REQUESTS = {
    "openai-chat": VALID["chat"],
    "openai-responses": VALID["responses"],
    "anthropic-messages": VALID["anthropic"],
    "gemini": VALID["gemini"],
    "bedrock-converse": VALID["bedrock"],
}


def missing_for(name: str, api: WireApi) -> Iterator[str]:
    """Yield what this row of the table lacks elsewhere."""
    for where in (f"dragoman.wire.{api.package}", f"dragoman.testing.validators.{api.package}"):
        try:
            import_module(where)
        except ModuleNotFoundError:
            yield where
    if not {*api.providers} & KITS.keys():
        yield "conformance samples"
    if name not in OVERHEADS:
        yield "token overheads"
    if name not in REQUESTS:
        yield "a valid request"


def test_every_wire_api_has_codec_validator_samples_and_overheads() -> None:
    assert {name: list(missing_for(name, api)) for name, api in WIRE_APIS.items()} == {name: [] for name in WIRE_APIS}


def test_a_row_that_brings_nothing_along_is_found() -> None:
    row = WireApi(package="telegraph", providers=("morse",), mark=b"stop")
    assert len(list(missing_for("telegraph", row))) == 5


@pytest.mark.parametrize("name", WIRE_APIS)
def test_a_package_has_the_codec_and_the_providers_of_its_row(name: str) -> None:
    assert find_codec(name).specification == name
    package = import_module(f"dragoman.wire.{WIRE_APIS[name].package}")
    assert {dialect.provider for dialect in package.DIALECTS} == {*WIRE_APIS[name].providers}
    assert {find_dialect(provider).specification for provider in WIRE_APIS[name].providers} == {name}


def test_a_provider_speaks_one_api() -> None:
    assert len(PROVIDERS) == sum(len(api.providers) for api in WIRE_APIS.values())


def test_a_wire_api_means_its_own_vendor() -> None:
    own = {name: find_provider(name) for name in WIRE_APIS}
    assert own == {
        "openai-chat": "openai-chat",
        "openai-responses": "openai",
        "anthropic-messages": "anthropic",
        "gemini": "google",
        "bedrock-converse": "bedrock",
    }


@pytest.mark.parametrize("judge", WIRE_APIS)
def test_the_types_of_a_vendor_take_the_requests_of_its_own_api_alone(judge: str) -> None:
    validator = import_module(f"dragoman.testing.validators.{WIRE_APIS[judge].package}")
    taken = [name for name, body in REQUESTS.items() if not validator.check_types(body, "some-model")]
    assert taken == [judge]


def first_marked(body: bytes) -> str | None:
    """The first API in the table whose mark is in the body."""
    return next((name for name, api in WIRE_APIS.items() if re.search(api.mark, body)), None)


@pytest.mark.parametrize("provider", KITS)
def test_a_streamed_answer_has_the_mark_of_its_api(provider: str) -> None:
    assert first_marked(KITS[provider][1][0].body) == PROVIDERS[provider]


@needs_corpus
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_recorded_answer_has_the_mark_of_another_api(protocol: str) -> None:
    api = PROVIDERS[find_provider(protocol)]
    answers = [record for record in records(protocol) if record["response"]["status"] == 200]
    assert answers
    wrong = [record["id"] for record in answers if first_marked(body_of(record)[: 1 << 16]) not in (api, None)]
    assert not wrong
