"""Sections at three levels of detail: order, sharing, the LiveScreen, plain text."""

import pytest
from hypothesis import given

from dragoman import InvalidValue
from dragoman.history import (
    LIVE_SCREEN,
    LevelOfDetail,
    LevelOfDetailSections,
    Section,
    to_plain_text,
    without_live_screen,
)
from dragoman.testing import histories

LEVELS = LevelOfDetailSections(
    (Section("", "all of it"), Section("note", "kept")), (Section("note", "kept"),), (Section("", "names"),)
)


def distinct(text: str) -> str:
    """Return an equal text that is another object."""
    return "".join(list(text))


def test_each_level_gives_its_own_sections() -> None:
    assert [to_plain_text(LEVELS.get_sections(detail)) for detail in LevelOfDetail] == [
        "all of it\n\n# note\nkept",
        "kept",
        "names",
    ]


def test_pairs_are_taken_for_sections() -> None:
    levels = LevelOfDetailSections([("a", "b")], [["a", "b"]], ())  # type: ignore[arg-type]
    assert levels.live == (Section("a", "b"),)
    assert type(levels.summary[0]) is Section


def test_uniform_sections_are_one_object_at_every_level() -> None:
    levels = LevelOfDetailSections.create_uniform([("", "x"), ("k", "y")])
    assert levels.live is levels.summary is levels.gist
    assert LevelOfDetailSections.of_text("x").gist == (Section("", "x"),)


def test_an_equal_level_becomes_the_same_object() -> None:
    levels = LevelOfDetailSections((Section("", "one"),), (Section("", distinct("one")),), (Section("", "two"),))
    assert levels.summary is levels.live


def test_equal_summary_and_gist_are_one_object() -> None:
    levels = LevelOfDetailSections((Section("", "long"),), (Section("", "short"),), (Section("", distinct("short")),))
    assert levels.gist is levels.summary


def test_a_text_that_stands_in_two_levels_is_stored_once() -> None:
    text = "a text that is shared"
    levels = LevelOfDetailSections(
        (Section("", text), Section("k", "v")),
        (Section("other key", distinct(text)),),
        (Section("", distinct(text)), Section("", "gist")),
    )
    assert levels.summary[0].value is text
    assert levels.gist[0] is levels.live[0]


@given(histories.level_sections())
def test_equal_texts_are_the_same_object_whatever_the_levels(levels: LevelOfDetailSections) -> None:
    texts: dict[str, str] = {}
    for detail in (LevelOfDetail.SUMMARY, LevelOfDetail.GIST):
        for section in levels.get_sections(detail):
            shared = [other.value for other in levels.live if other.value == section.value]
            shared += [texts[section.value]] if section.value in texts else []
            assert not shared or any(section.value is other for other in shared)
            texts.setdefault(section.value, section.value)


def test_lone_surrogates_are_replaced() -> None:
    assert LevelOfDetailSections.of_text("a\ud800b").live[0].value == "a\ufffdb"


def test_a_live_section_is_added_at_the_end() -> None:
    changed = LEVELS.with_live_section(LIVE_SCREEN, "screen")
    assert changed.live == (*LEVELS.live, Section(LIVE_SCREEN, "screen"))
    assert changed.summary is LEVELS.summary
    assert changed.gist is LEVELS.gist


def test_a_live_section_is_replaced_in_its_place() -> None:
    changed = LEVELS.with_live_section("", "other")
    assert [section.value for section in changed.live] == ["other", "kept"]
    assert changed.summary == LEVELS.summary


def test_a_live_section_that_changes_nothing_gives_the_same_object() -> None:
    assert LEVELS.with_live_section("note", "kept") is LEVELS


def test_plain_text_of_one_section_is_its_value_whatever_its_key() -> None:
    assert to_plain_text((Section("title", "value"),)) == "value"
    assert to_plain_text(()) == ""


def test_plain_text_puts_headings_over_sections_with_a_key_except_the_live_screen() -> None:
    sections = (Section("a", "1"), Section("", "2"), Section(LIVE_SCREEN, "# [Live Screen]\n\n3"))
    assert to_plain_text(sections) == "# a\n1\n\n2\n\n# [Live Screen]\n\n3"


def test_sections_without_a_live_screen_stay_the_same_object() -> None:
    assert without_live_screen(LEVELS.live) == (LEVELS.live, None)
    assert without_live_screen(LEVELS.live)[0] is LEVELS.live


def test_the_live_screen_is_taken_out_and_returned() -> None:
    with_screen = (Section("a", "1"), Section(LIVE_SCREEN, "screen"), Section("b", "2"))
    assert without_live_screen(with_screen) == ((Section("a", "1"), Section("b", "2")), "screen")


@pytest.mark.parametrize("wrong", ["text", [("only",)], [("k", 1)], [(1, "v")], [None], {"k": "v"}, 3])
def test_what_is_no_sections_is_refused(wrong: object) -> None:
    for level in ("live", "summary", "gist"):
        with pytest.raises(InvalidValue, match=rf"^{level}(:| must)"):
            LevelOfDetailSections(**{level: wrong})  # type: ignore[arg-type]


def test_a_refused_section_is_not_quoted() -> None:
    with pytest.raises(InvalidValue) as raised:
        LevelOfDetailSections("my secret words")  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)
