"""The typed output as far as it has come: each value is of the type, the last one is the output."""

import json
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from itertools import groupby, pairwise
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import Agent, AgentConfig, FinishReason, LoopConfig, RunFailed
from dragoman.agent.jsonprefix import MAX_DEPTH, JsonPrefix
from dragoman.agent.output import OutputReader, PartialReader
from dragoman.testing import Call, ScriptedModel, Turn
from tests.agent_cases import asks, run, weather


@dataclass
class Step:
    what: str
    minutes: int


@dataclass
class Recipe:
    title: str
    steps: list[Step] = field(default_factory=list)
    note: str | None = None


class Place(TypedDict):
    name: str
    tags: NotRequired[list[str]]


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


class Trip(pydantic.BaseModel):
    to: str
    days: Annotated[int, pydantic.Field(ge=1)] = 1


class Mood(Enum):
    CALM = "calm"
    CALMER = "calmer"


TAGS: list[dict[str, list[str]]] = [{"tags": []}, {"tags": [""]}, {"tags": ["a"]}]


def arrived(kind: Any, text: str) -> list[Any]:
    """Return the values that a reader gives while the text comes letter by letter, without repetitions."""
    reader: PartialReader[Any] = PartialReader(OutputReader(kind))
    values = [value for piece in text for value in reader.feed(piece)]
    return [value for value, _ in groupby(values)]


def test_a_list_grows_by_whole_items_and_texts_letter_by_letter() -> None:
    text = '{"title": "So", "steps": [{"what": "boil", "minutes": 10}, {"what": "eat", "minutes": 5}]}'
    boil, eat = Step("boil", 10), Step("eat", 5)
    assert arrived(Recipe, text) == [
        Recipe(""),
        Recipe("S"),
        Recipe("So"),
        Recipe("So", [boil]),
        Recipe("So", [boil, eat]),
    ]


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (Place, '{"name": "", "tags": ["a"]}', [{"name": "", **tags} for tags in ({}, *TAGS)]),
        (Point, '{"x": 12.5, "y": 3}', [Point(12.5), Point(12.5, 3)]),
        (Trip, '{"to": "R", "days": 2}', [Trip(to=""), Trip(to="R"), Trip(to="R", days=2)]),
        (list[int], '{"value": [12, 3]}', [[], [12], [12, 3]]),
        (dict[str, int], '{"a": 1, "b": 22}', [{}, {"a": 1}, {"a": 1, "b": 22}]),
        (int, '{"value": 12}', [12]),
        (int | str, '{"value": "no"}', ["", "n", "no"]),
        (bool, '{"value": true}', [True]),
        (date, '{"value": "2026-11-16"}', [date(2026, 11, 16)]),
        (Literal["a", "ab"], '{"value": "ab"}', ["ab"]),
        (list[Mood], '{"value": ["calmer"]}', [[], [Mood.CALMER]]),
        (str, "abc", ["a", "ab", "abc"]),
        (Any, '{"value": {"a": [nu', [{}, {"a": []}]),
    ],
)
def test_what_does_not_fit_yet_is_left_out(kind: Any, text: str, values: list[Any]) -> None:
    assert arrived(kind, text) == values


def test_a_required_field_that_has_not_come_holds_the_object_back() -> None:
    assert arrived(Step, '{"what": "boil", "minutes": 1') == []


def test_json_in_a_fence_after_some_words_is_found() -> None:
    assert arrived(list[int], 'Here:\n```json\n{"value": [1, 2]}\n```\nDone.')[-1] == [1, 2]


@pytest.mark.parametrize("text", ["no JSON at all", "]", '{"value": [1}', "[1, 2]", "12", '{"other": 1}', ""])
def test_what_is_no_output_gives_nothing(text: str) -> None:
    assert [value for value in arrived(list[int], text) if value] == []


def test_an_escape_that_is_cut_waits_for_its_end() -> None:
    text = json.dumps({"value": 'a"\\\N{ROCKET}é\n'})
    seen = arrived(str | int, text)
    assert seen[-1] == 'a"\\\N{ROCKET}é\n'
    assert all(seen[-1].startswith(value) for value in seen)


def test_deep_nesting_gives_nothing_until_it_is_whole() -> None:
    deep = "[" * (MAX_DEPTH + 1)
    assert arrived(list[Any], '{"value": ' + deep)[-1] is not None
    prefix = JsonPrefix()
    prefix.follow(deep)
    assert list(prefix.closed_texts(deep)) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4) | st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.booleans(), st.data())
def test_every_way_to_close_a_text_is_json_and_a_whole_text_is_itself(value: Any, ascii_only: bool, data: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=data.draw(st.sampled_from([None, 2])))
    prefix = JsonPrefix()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    for cut in [*cuts, len(text)]:
        prefix.follow(text[:cut])
        for closed in prefix.closed_texts(text[:cut]):
            assert isinstance(json.loads(closed.text), type(value))
            assert closed.probe is None or json.loads(closed.probe) != json.loads(closed.text)
    assert [json.loads(closed.text) for closed in prefix.closed_texts(text)] == [value]


def test_the_last_value_is_the_output_and_each_differs_from_the_one_before() -> None:
    text = '{"title": "Soup", "steps": [{"what": "boil", "minutes": 10}]}'

    async def read() -> tuple[list[Recipe], Recipe]:
        agent = Agent(ScriptedModel(asks(Call("weather", {"city": "Rome"})), text), tools=[weather], output_type=Recipe)
        stream = agent.stream("x")
        values = [value async for value in stream.partial()]
        return values, (await stream.result()).unwrap()

    values, output = run(read())
    assert values[-1] == output == Recipe("Soup", [Step("boil", 10)])
    assert all(left != right for left, right in pairwise(values))


def test_an_answer_that_is_asked_for_again_starts_anew() -> None:
    agent = Agent(ScriptedModel('{"value": [1, 2, 3, 4, 5, "no"]}', '{"value": [2]}'), output_type=list[int])
    values = list(agent.stream_sync("x").partial())
    assert [1, 2, 3, 4] in values
    assert values[-1] == [2]


def test_an_answer_that_was_cut_and_goes_on_is_one() -> None:
    cut = Turn(text='{"value": [1, 2', finish_reason=FinishReason.LENGTH)
    config = AgentConfig(loop=LoopConfig(continue_cut=1))
    agent = Agent(ScriptedModel(cut, "2, 3]}"), output_type=list[int], config=config)
    assert list(agent.stream_sync("x").partial())[-1] == [1, 22, 3]


def test_an_output_without_equality_is_given_at_the_end_again() -> None:
    class Named(msgspec.Struct, eq=False):
        name: str

    agent = Agent(ScriptedModel('{"name": "Ada"}'), output_type=Named)
    stream = agent.stream_sync("x")
    assert list(stream.partial())[-1] is stream.result().output


def test_a_run_without_output_raises_why() -> None:
    refusal = Turn(text="No.", finish_reason=FinishReason.REFUSAL)
    with pytest.raises(RunFailed, match="refused"):
        list(Agent(ScriptedModel(refusal), output_type=list[int]).stream_sync("x").partial())


def test_what_a_type_raises_for_a_part_of_the_output_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Ranked:
        names: list[str] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.first = self.names[0]  # IndexError until the first name has come

    agent = Agent(ScriptedModel('{"names":  [ "Ada", "Bob"]}'), output_type=Ranked)
    stream = agent.stream_sync("x")
    assert list(stream.partial())[-1] == Ranked(["Ada", "Bob"])
    assert not [record for record in caplog.records if "raised" in record.getMessage()]
    assert stream.result().raised == ()
