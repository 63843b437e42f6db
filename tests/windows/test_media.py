"""Images and files: as many of the newest are sent as the provider takes; the others leave a line, and seldom."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.properties.building import Asked, first, stored, window
from tests.properties.histories import Body, Format, Given
from tests.support.pictures import png
from turnlog.client.model import Turnlog
from turnlog.core.messages import Media, Message
from turnlog.linter.rules import lint
from turnlog.providers import Turn
from turnlog.providers.token_rules import count_image_of_claude
from turnlog.windows.build import Window
from turnlog.windows.media import MEDIA_LIMITS, within_media_limits
from turnlog.windows.render import PlacedTurn

PROVIDERS: tuple[Format, ...] = ("anthropic", "bedrock_converse", "openai_chat", "openai_responses")


def shot(number: int, *, width: int = 2_532, kind: str = "image") -> Body:
    """Return a message with an image or a file in Turnlog's own format."""
    media_type = "image/png" if kind == "image" else "application/pdf"
    block = {"type": kind, "media_type": media_type, "data": png(width, 1_170), "name": f"{number}"}
    return {"role": "user", "content": [block, {"type": "text", "text": f"shot {number}"}]}


def shots(count: int, **options: Any) -> list[Given]:
    """Return so many images, each with an answer."""
    said = {"role": "assistant", "content": "seen"}
    return [Given(body, "turnlog") for number in range(count) for body in (shot(number, **options), said)]


def images(built: Window) -> int:
    return json.dumps(built.messages).count("iVBORw0KGgo")


def built(messages: list[Given], format: Format) -> Window:
    made = window(stored(messages), Asked("full", format=format))
    assert lint(made.messages, format=format) == []
    return made


@pytest.mark.parametrize("format", PROVIDERS)
def test_no_window_has_more_images_than_its_provider_takes(format: Format) -> None:
    for count, width in ((25, 2_532), (25, 1_000), (130, 1_000), (130, 9_000)):
        made = built([*shots(count, width=width), Given({"role": "user", "content": "go on"})], format)
        limits = MEDIA_LIMITS[format]
        most = 0 if width > limits.side else limits.many if width > limits.many_side else limits.images
        assert min(count, most // 2) <= images(made) <= most or images(made) == count <= most
        assert json.dumps(made.messages).count("not shown here") == count - images(made)


@pytest.mark.parametrize("answer", [{"reasoningContent": {"redactedContent": "c2ln"}}, {"text": " "}])
def test_files_on_both_sides_of_an_answer_that_is_not_sent_count_as_one_message(answer: Body) -> None:
    files = [Given(shot(number, kind="file"), "turnlog") for number in range(6)]
    unsent = Given({"role": "assistant", "content": [answer]}, "bedrock_converse")
    made = built([*files[:3], unsent, *files[3:]], "bedrock_converse")
    assert images(made) == MEDIA_LIMITS["bedrock_converse"].turn_files


def test_a_large_model_of_claude_takes_six_hundred_images(log: Turnlog) -> None:
    session = log.sessions.create(model="claude-sonnet-4-5", policy="full")
    for _ in range(5):
        session.append(*(shot(number, width=100) for number in range(25)), format="turnlog")
    for model, count in ((None, 74), ("claude-opus-4-6", 125), ("claude-haiku-4-5", 74), ("unknown", 74)):
        window = session.context(format="anthropic", budget=900_000, model=model)
        assert json.dumps(window.messages).count("iVBORw0KGgo") == count
        rules = {problem.rule for problem in lint(window.messages, format="anthropic")}
        assert rules == ({"too_many_images"} if count > 100 else set()), "a rule of some models"
        assert window.manifest.build is not None
        again = session.context(build=window.manifest.build)
        assert again.messages == window.messages and again.manifest.epoch == window.manifest.epoch
    assert session.context(format="bedrock_converse", budget=900_000, model="claude-opus-4-6").messages


def test_the_newest_images_stay_and_a_line_names_the_message_of_an_older_one() -> None:
    made = built([*shots(21), Given({"role": "user", "content": "go on"})], "anthropic")
    assert images(made) == 10
    sent = [message["content"] for message in made.messages if message["role"] == "user"]
    assert sent[0] == [
        {"type": "text", "text": "[image not shown here: ref 1 has it]"},
        {"type": "text", "text": "shot 0"},
    ]
    assert [content[0]["type"] for content in sent[:-1]] == ["text"] * 11 + ["image"] * 10


@pytest.mark.parametrize("format", ["anthropic", "bedrock_converse"])
def test_W11_images_leave_at_an_epoch_s_end_and_many_at_once(format: Format) -> None:
    held = stored(shots(60))
    asked = Asked("full", format=format)
    windows = [window(first(held, count), asked) for count in range(1, 120, 2)]
    breaks = 0
    for before, after in pairwise(windows):
        assert lint(after.messages, format=format) == []
        if before.epoch == after.epoch:
            assert after.messages[: len(before.messages)] == before.messages
            assert after.prefix.reason is None
        else:
            assert after.messages[: len(before.messages)] != before.messages
            assert after.prefix.reason == "media"
            breaks += 1
    assert breaks == 4, "of twenty images ten leave at once"


def test_W11_an_answer_s_sound_is_a_transcript_from_the_first_message_on_that_comes_when_it_has_expired() -> None:
    audio = {"id": "audio_1", "data": "AAAA", "expires_at": 6, "transcript": "It is late."}
    answers = [{"content": None, "audio": audio}, *({"content": "yes"} for _ in range(4))]
    said = [({"role": "user", "content": "and?"}, {"role": "assistant", **answer}) for answer in answers]
    held = stored([Given(body) for bodies in said for body in bodies])
    windows = [window(first(held, count), Asked("full", format="openai_chat")) for count in (3, 5, 7, 9)]
    spoken, written = {"content": None, "audio": {"id": "audio_1"}}, {"content": "It is late.\n[audio]"}
    for made, answer in zip(windows, (spoken, spoken, written, written), strict=True):
        assert made.messages[1] == {"role": "assistant", **answer}
        assert lint(made.messages, format="openai_chat") == []
    assert [made.prefix.reason for made in windows] == [None, None, "media", None]
    assert [made.epoch.since for made in windows] == [0, 0, 6, 6]
    assert windows[2].prefix.broke_at == 2
    assert window(held, Asked("full", format="anthropic")).epoch.since == 0, "other formats send no sound"


def test_a_sound_that_had_expired_when_its_answer_was_appended_is_a_transcript_in_all_windows() -> None:
    audio = {"id": "audio_1", "expires_at": 1, "transcript": "It is late."}
    held = stored(
        [Given({"role": "user", "content": "and?"}), Given({"role": "assistant", "content": None, "audio": audio})]
    )
    made = window(held, Asked("full", format="openai_chat"))
    assert made.messages[1]["content"] == "It is late.\n[audio]" and made.epoch.since == 0
    tools = Asked("full", format="openai_responses")
    assert window(held, tools).messages[1]["content"] == "It is late.\n[audio]"


def test_a_result_s_image_leaves_the_ref_of_its_call() -> None:
    messages = list[Given]()
    for number in range(21):
        call_id = f"toolu_{number}"
        call = {"type": "tool_use", "id": call_id, "name": "look", "input": {}}
        source = {"type": "base64", "media_type": "image/png", "data": png(2_532, 1_170)}
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "image", "source": source}]}
        messages += [Given({"role": "assistant", "content": [call]}, "anthropic")]
        messages += [Given({"role": "user", "content": [answer]}, "anthropic")]
    made = built([Given({"role": "user", "content": "look around"}), *messages], "anthropic")
    assert images(made) == 10
    assert made.messages[2]["content"][0]["content"] == [  # type: ignore[index]
        {"type": "text", "text": "[image not shown here: ref 2.0 has it]"}
    ]


def test_what_is_too_large_by_itself_never_stands_in_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEDIA_LIMITS, "anthropic", MEDIA_LIMITS["anthropic"]._replace(image_chars=30))
    assert images(built([Given(shot(1), "turnlog")], "anthropic")) == 0
    assert images(built([Given(shot(1, width=8_001), "turnlog")], "bedrock_converse")) == 0


def test_the_bytes_of_a_request_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(png(1, 1))
    monkeypatch.setitem(MEDIA_LIMITS, "openai_responses", MEDIA_LIMITS["openai_responses"]._replace(chars=8 * size))
    assert [images(built(shots(count), "openai_responses")) for count in (8, 9, 12, 13)] == [8, 4, 7, 8]


@pytest.mark.parametrize("is_text", [False, True])
def test_converse_takes_five_documents_in_a_message(is_text: bool) -> None:
    messages = [Given(shot(number, kind="file"), "turnlog") for number in range(3 if is_text else 7)]
    for number in range(4 * is_text):
        block = {"document": {"name": f"note {number}", "source": {"text": "hi"}}}
        messages.append(Given({"role": "user", "content": [block, {"text": "look"}]}, "bedrock_converse"))
    made = built(messages, "bedrock_converse")
    (message,) = made.messages
    assert sum("document" in block for block in message["content"]) == 5  # type: ignore[union-attr]
    assert json.dumps(message).count("[file not shown here: ref ") == 2


@pytest.mark.parametrize(
    ("size", "tokens"), [((200, 200), 64), ((1_000, 1_000), 1_296), ((1_920, 1_080), 2_691), ((8_000, 8_000), 4_784)]
)
def test_an_image_costs_what_claude_counts(size: tuple[int, int], tokens: int) -> None:
    assert count_image_of_claude(Media("image", data=png(*size))) == tokens
    assert count_image_of_claude(Media("image", url="https://example.com/a.png")) == 1_568


def test_a_window_for_claude_is_charged_with_its_count() -> None:
    made = built([Given(shot(1, width=1_920), "turnlog")], "anthropic")
    assert made.tokens >= count_image_of_claude(Media("image", data=png(1_920, 1_170)))


class CountedKind(str):
    """The kind of an image, which counts how often it is compared."""

    looks = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedKind.looks += 1
        return str(self) is other or str.__eq__(self, other)


@pytest.mark.parametrize("width", [1_000, 2_532])
def test_choosing_among_twice_as_many_images_looks_at_twice_as_many(width: int) -> None:
    def looks(count: int) -> int:
        block = Media(CountedKind("image"), data=png(width, 1_170))  # type: ignore[arg-type]
        turns = [Turn(Message(role, (block,) if role == "user" else ())) for role in ("user", "assistant")] * count
        CountedKind.looks = 0
        within_media_limits([PlacedTurn(turn) for turn in turns], MEDIA_LIMITS["anthropic"], ())
        return CountedKind.looks

    assert 400 <= looks(400) <= 2 * looks(200) + 10
