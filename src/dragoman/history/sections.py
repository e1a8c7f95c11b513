"""Texts at three levels of detail, as ordered sections. Knows no entries and no budget: others pick the level."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import join_surrogates
from ..errors import InvalidValue

__all__ = [
    "LIVE_SCREEN",
    "LevelOfDetail",
    "LevelOfDetailSections",
    "Section",
    "Sections",
    "to_plain_text",
    "without_live_screen",
]

# The key of the section that holds what the widgets showed when the entry was written.
LIVE_SCREEN = "[LiveScreen]"


class LevelOfDetail(StrEnum):
    """How much of a text is shown: all of it, what matters of it, or its names alone."""

    LIVE = "live"
    SUMMARY = "summary"
    GIST = "gist"


class Section(NamedTuple):
    """A titled text; an empty key is a text without a title."""

    key: str
    value: str


Sections: TypeAlias = tuple[Section, ...]


class LevelOfDetailSections(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The same content at three levels, each an ordered tuple of sections.

    Pairs are taken for sections. Lone surrogates become U+FFFD. Equal texts of several levels are one object.
    """

    live: Sections = ()
    summary: Sections = ()
    gist: Sections = ()

    def __post_init__(self) -> None:
        live = _sections("live", self.live)
        if live is self.live is self.summary is self.gist:
            return
        summary = live if self.summary is self.live else _sections("summary", self.summary)
        gist = live if self.gist is self.live else _sections("gist", self.gist)
        if summary is not live or gist is not live:
            known = {section: section for section in live}
            texts = {section.value: section.value for section in live}
            summary = live if summary == live else _shared(summary, known, texts)
            gist = live if gist == live else summary if gist == summary else _shared(gist, known, texts)
        for name, level in (("live", live), ("summary", summary), ("gist", gist)):
            if getattr(self, name) is not level:
                force_setattr(self, name, level)

    @classmethod
    def create_uniform(cls, sections: Iterable[tuple[str, str]]) -> "LevelOfDetailSections":
        """Return the same sections at every level."""
        level = tuple(sections)
        return cls(level, level, level)  # type: ignore[arg-type]  # pairs are taken for sections

    @classmethod
    def of_text(cls, text: str) -> "LevelOfDetailSections":
        """Return one text without a title at every level."""
        return cls.create_uniform((Section("", text),))

    def get_sections(self, detail: LevelOfDetail) -> Sections:
        """Return the sections of one level."""
        if detail is LevelOfDetail.SUMMARY:
            return self.summary
        if detail is LevelOfDetail.GIST:
            return self.gist
        return self.live

    def with_live_section(self, key: str, value: str) -> "LevelOfDetailSections":
        """Return these with the live section `key` replaced, or added at the end; self if that changes nothing."""
        section = Section(key, value)
        for index, present in enumerate(self.live):
            if present.key == key:
                if present.value == value:
                    return self
                return LevelOfDetailSections(
                    (*self.live[:index], section, *self.live[index + 1 :]), self.summary, self.gist
                )
        return LevelOfDetailSections((*self.live, section), self.summary, self.gist)


def to_plain_text(sections: Sections) -> str:
    """Return the sections as one text: a single one bare, several under their keys as headings, a blank line between.

    An empty key and the LiveScreen, which has a heading of its own, get none.
    """
    if len(sections) == 1:
        return sections[0].value
    return "\n\n".join(
        f"# {section.key}\n{section.value}" if section.key and section.key != LIVE_SCREEN else section.value
        for section in sections
    )


def without_live_screen(sections: Sections) -> tuple[Sections, str | None]:
    """Return the sections without the LiveScreen, and its text if there was one."""
    screens = [section.value for section in sections if section.key == LIVE_SCREEN]
    if not screens:
        return sections, None
    return tuple(section for section in sections if section.key != LIVE_SCREEN), screens[-1]


def _sections(level: str, given: object) -> Sections:
    """The sections as a tuple of Section values, the same object where it is one already."""
    if not isinstance(given, (tuple, list)):
        raise InvalidValue.of_content(level, given, "a sequence of sections")
    if type(given) is tuple and all(map(_is_plain, given)):  # nearly always
        return given
    sections = tuple(_section(level, pair) for pair in given)
    unchanged = isinstance(given, tuple) and all(new is old for new, old in zip(sections, given, strict=True))
    return given if unchanged else sections  # type: ignore[return-value]  # a tuple of Section values, as just seen


def _is_plain(pair: object) -> bool:
    """Whether this is a section as it should be, seen from its types alone."""
    if type(pair) is not Section:
        return False
    key, value = pair
    return type(key) is str and key.isascii() and type(value) is str and value.isascii()


def _section(level: str, pair: object) -> Section:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not str:
        raise InvalidValue.of_content(f"{level}: a section", pair, "a key and a value, both text")
    key, value = join_surrogates(pair[0]), join_surrogates(pair[1])
    if type(pair) is Section and key is pair[0] and value is pair[1]:
        return pair
    return Section(key, value)


def _shared(sections: Sections, known: dict[Section, Section], texts: dict[str, str]) -> Sections:
    """The sections made of objects that other levels hold already, as far as they are equal; new ones are noted."""
    shared = []
    for section in sections:
        same = known.get(section)
        if same is None:
            value = texts.setdefault(section.value, section.value)
            same = section if value is section.value else Section(section.key, value)
            known[same] = same
        shared.append(same)
    return sections if all(new is old for new, old in zip(shared, sections, strict=True)) else tuple(shared)
