"""The lower bound of tokens is one: on text of all kinds, whatever scripts stand side by side."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import is_full
from tests.support.token_texts import CONVERSATIONS, OBJECT, PROSE, TEXTS, count, real_texts
from turnlog.core.token_bounds import lower_bound_tokens

SIGNS = st.sampled_from(
    [
        *"aAzZ09'.,/ \n\r\t-",
        "'ll",
        "  ",
        "\n\n",
        "é",
        "É",
        "中",
        "٣",
        "…",
        "“",
        "\u00a0",
        "\u2028",
        "\u0301",
        "ſ",
        "ǅ",
        "ʰ",
        "\ud83d",
    ]
)


@pytest.mark.parametrize("kind", TEXTS)
def test_the_lower_bound_holds(kind: str) -> None:
    @settings(max_examples=150 if is_full() else 40, deadline=None)
    @given(TEXTS[kind])
    def holds(text: str) -> None:
        assert lower_bound_tokens(text) <= count(text)

    holds()


@settings(max_examples=2_000 if is_full() else 200, deadline=None)
@given(st.lists(SIGNS, max_size=24).map("".join))
def test_the_lower_bound_holds_where_scripts_and_spaces_meet(text: str) -> None:
    assert lower_bound_tokens(text) <= count(text)


@pytest.mark.parametrize("text", [PROSE, OBJECT])
def test_the_lower_bound_is_not_far_off(text: str) -> None:
    assert lower_bound_tokens(text) >= 0.85 * count(text)


@pytest.mark.parametrize("between", ["é", "中文", "…", "\u2028"])
def test_each_stretch_of_ascii_is_in_the_lower_bound(between: str) -> None:
    """Up to a piece at each of its borders."""
    stretches = [PROSE, OBJECT, PROSE, OBJECT]
    pieces = sum(lower_bound_tokens(stretch) for stretch in stretches)
    assert lower_bound_tokens(between.join(stretches)) >= pieces - 2 * (len(stretches) - 1)


@pytest.mark.skipif(not (CONVERSATIONS / "load.py").exists(), reason="no real conversations at ../shared/data")
def test_the_lower_bound_holds_for_real_conversations() -> None:
    for text in real_texts():
        for part in (text[:500], text[500:2000]):
            assert lower_bound_tokens(part) <= count(part), part
