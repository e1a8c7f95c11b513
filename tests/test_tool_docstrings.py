"""Docstrings: their first paragraph, and what they say of parameters, in the three styles that people write."""

import pytest

from dragoman.tools.docstrings import read_docstring

GOOGLE = """Find things.

    Not part of the summary.

    Args:
        query (str, optional): What to look for,
            on two lines: really.
        limit: How many.
        **options: More.

    Returns:
        nothing: at all
    """
NUMPY = """Find things.

    Parameters
    ----------
    query : str, optional
        What to look for,
        on two lines: really.
    limit : int
        How many.
    **options
        More.

    Returns
    -------
    nothing
        at all
    """
SPHINX = """Find things.

    :param str query: What to look for,
        on two lines: really.
    :param limit: How many.
    :type limit: int
    :keyword options: More.
    :returns: nothing at all
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["Google", "NumPy", "Sphinx"])
def test_a_docstring_says_what_the_parameters_are(text: str) -> None:
    found = read_docstring(text)
    assert found.summary == "Find things."
    assert found.parameters == {
        "query": "What to look for, on two lines: really.",
        "limit": "How many.",
        "options": "More.",
    }


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (None, None),
        ("", None),
        ("   \n  ", None),
        ("One\ntwo.\n\nThree.", "One two."),
        ("One.\nArgs:\n    a: b", "One."),
        ("Args:\n    a: b", None),
        ("One.\n:param a: b", "One."),
        ("Ratio: a: b\n", "Ratio: a: b"),
    ],
)
def test_the_summary_is_the_first_paragraph(text: str | None, summary: str | None) -> None:
    assert read_docstring(text).summary == summary


def test_a_docstring_in_no_style_says_nothing_of_parameters() -> None:
    assert read_docstring("Takes a: the thing.\n\nAlso: b\n    c: d\n").parameters == {}
