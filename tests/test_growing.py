"""Sequences that only grow: every earlier one stays what it was, and the newest is never copied to grow."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.history.growing import GrowingIds, GrowingList

names = st.sampled_from(("a", "b", "a~2", "a~3", "c"))


@given(st.lists(st.tuples(st.integers(0, 20), st.lists(st.integers(), max_size=3)), max_size=12))
def test_lists_grown_from_any_earlier_one_are_what_plain_lists_would_be(steps: list[tuple[int, list[int]]]) -> None:
    grown: list[tuple[GrowingList[int], list[int]]] = [(GrowingList(), [])]
    for place, items in steps:
        base, plain = grown[place % len(grown)]
        grown.append((base.with_added(items), [*plain, *items]))
    for view, plain in grown:
        assert list(view) == plain
        assert view == plain
        assert list(reversed(view)) == plain[::-1]
        assert view[-2:] == plain[-2:]
        assert list(view.first(2)) == plain[:2]
        assert pickle.loads(pickle.dumps(view)) == copy.deepcopy(view) == view


@given(st.lists(st.tuples(st.integers(0, 20), st.lists(names, max_size=3)), max_size=12))
def test_ids_grown_from_any_earlier_ones_are_what_plain_sets_would_be(steps: list[tuple[int, list[str]]]) -> None:
    grown: list[tuple[GrowingIds, list[str]]] = [(GrowingIds(), [])]
    for place, ids in steps:
        base, plain = grown[place % len(grown)]
        assert base.free_form("a") == first_free("a", plain)
        grown.append((base.with_added(ids), list(dict.fromkeys([*plain, *ids]))))
    for view, plain in grown:
        assert list(view) == plain
        assert view == GrowingIds(plain)
        assert [name in view for name in ("a", "b", "c")] == [name in plain for name in ("a", "b", "c")]
        assert view.free_form("a") == first_free("a", plain)
        assert view.free_form("a", {"a", "a~2"}) == first_free("a", [*plain, "a", "a~2"])


def first_free(name: str, taken: list[str]) -> str:
    candidates = [name, *(f"{name}~{number}" for number in range(2, 99))]
    return next(candidate for candidate in candidates if candidate not in taken)


def test_the_newest_grows_without_a_copy() -> None:
    first = GrowingList([1])
    second = first.with_added([2])
    assert second._items is first._items
    ids = GrowingIds(["a"])
    assert ids.with_added(["b"])._indices is ids._indices


class CountingIds(GrowingIds):
    """Counts how often it is asked for an id."""

    lookups = 0

    def __contains__(self, name: object) -> bool:
        self.lookups += 1
        return super().__contains__(name)


def test_a_free_form_is_not_searched_from_the_beginning_again() -> None:
    ids = CountingIds(["a", *(f"a~{number}" for number in range(2, 1000))])
    assert ids.free_form("a") == "a~1000"
    ids.lookups = 0
    assert ids.free_form("a") == "a~1000"
    assert ids.lookups < 5
    assert ids.with_added(["a~1000"]).free_form("a") == "a~1001"


def test_an_index_outside_is_an_error_though_the_shared_list_is_longer() -> None:
    first = GrowingList([1])
    first.with_added([2])
    for index in (1, -2):
        with pytest.raises(IndexError):
            first[index]


def test_they_say_what_they_hold_and_equal_nothing_of_another_kind() -> None:
    assert repr(GrowingList([1])) == "GrowingList([1])"
    assert repr(GrowingIds(["a"])) == "GrowingIds(['a'])"
    assert GrowingList(["a"]) != "a"
    assert GrowingIds(["a"]) != {"a"}
    assert len(GrowingIds(["a", "a"])) == 1
