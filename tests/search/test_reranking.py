"""Embedding models behind the port, over real HTTP: their vectors put results in order, their faults change nothing but a word."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.summaries.server import Asked, ModelServer, Reply
from tests.support.recalls import user
from tests.support.steps import application, fresh
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import EmbedderConfigError, InvalidInputError, ThrottledError, TurnlogError, UnavailableError
from turnlog.core.limits import with_deadline
from turnlog.engines import make_embedder
from turnlog.engines.aws_clients import Clients
from turnlog.engines.bedrock import MAX_TEXTS, BedrockEmbedder
from turnlog.search.session import RERANKED, Reranker
from turnlog.settings import Settings
from turnlog.testing.fixed import SequentialIds

TITAN, COHERE = "amazon.titan-embed-text-v2:0", "cohere.embed-multilingual-v3"
CANARY = "canary-8841"


def vector(text: str) -> list[float]:
    """What a text is about: ships, money, neither."""
    return [float("ship" in text or "boat" in text), float("paid" in text or "invoice" in text), 0.1]


def vectors(asked: Asked) -> Reply:
    if "titan" in asked.path:
        return Reply(raw=json.dumps({"embedding": vector(asked.body["inputText"])}).encode())
    return Reply(raw=json.dumps({"embeddings": [vector(text) for text in asked.body["texts"]]}).encode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    made = ModelServer(vectors)
    yield made
    made.close()


def embedder(server: ModelServer, model: str = TITAN, *, timeout_seconds: int = 30) -> BedrockEmbedder:
    clients = Clients("eu-central-1", server.url, max_attempts=1)
    return BedrockEmbedder(clients, model, timeout_seconds=timeout_seconds)


def reranked(log: Turnlog, embedder: Any) -> Turnlog:
    """The same log, its application with an embedder."""
    backend = log.backend
    assert isinstance(backend, InProcessBackend)
    app: Application = backend.app
    app.__dict__["reranker"] = Reranker(embedder)
    for name in ("search_session", "search_sessions"):
        app.__dict__.pop(name, None)
    return log


@pytest.fixture
def log() -> Turnlog:
    return application(*fresh(lambda log: None)(), SequentialIds())


def spoken(log: Turnlog) -> Session:
    """By words the third is the best for the question; by meaning the second is."""
    session = log.sessions.create("s", title="Boats")
    for text in (
        "the sum of it all",
        "who paid for the ship, in sum?",
        "sum sum sum and no more",
        f"{CANARY} says nothing",
    ):
        session.append(user(text), {"role": "assistant", "content": "Yes."})
    return session


# ------------------------------------------------------------ the order


@pytest.mark.network
@pytest.mark.parametrize("model", [TITAN, COHERE])
def test_what_words_have_found_is_put_in_order_by_meaning_too(log: Turnlog, server: ModelServer, model: str) -> None:
    session = spoken(log)
    question = "the sum for the boat that was paid"
    by_words = session.search(question, limit=50)
    assert by_words.reranking == "off"
    reranked(log, embedder(server, model))
    answer = session.search(question, limit=50)
    assert answer.reranking == "done"
    assert {result.position for result in answer.results} == {result.position for result in by_words.results}, (
        "words decide what is found"
    )
    assert answer.results[0].position == 4
    scores = [result.score for result in answer.results]
    assert scores == sorted(scores, reverse=True) and 0 <= scores[-1] <= scores[0] <= 1
    asked = [item.body for item in server.asked]
    if model == COHERE:
        assert [item["input_type"] for item in asked] == ["search_query", "search_document"]
    else:
        assert len(asked) == 1 + len(by_words.results) and all(item["dimensions"] == 256 for item in asked)
        assert all(item["normalize"] is True for item in asked), "vectors of one length are compared by their angle"
    everywhere = log.search(question)
    assert everywhere.reranking == "done" and everywhere.results[0].position == 4


@pytest.mark.network
def test_the_best_twenty_by_words_are_reranked_and_as_many_told_as_are_asked_for(
    log: Turnlog, server: ModelServer
) -> None:
    session = log.sessions.create("s")
    for at in range(0, 50, 25):
        session.append(*(user(f"boats, number {n}") for n in range(at, at + 25)))
    reranked(log, embedder(server, COHERE))
    assert len(session.search("boats", limit=3).results) == 3
    assert len(server.asked[-1].body["texts"]) == RERANKED
    assert len(session.search("boats", limit=30).results) == 30
    assert len(server.asked[-1].body["texts"]) == 30
    before = len(server.asked)
    assert session.search("zebra").results == [] and session.search("number 7", limit=1).reranking == "done"
    assert len(server.asked) == before + 2, "nothing is asked about nothing"


@pytest.mark.network
def test_long_texts_are_cut_and_many_are_several_calls(log: Turnlog, server: ModelServer) -> None:
    texts = [f"{at}" for at in range(MAX_TEXTS + 4)]
    assert len(embedder(server, COHERE).embed(texts)) == MAX_TEXTS + 4
    assert sorted(len(item.body["texts"]) for item in server.asked) == [4, MAX_TEXTS]
    session = log.sessions.create("s")
    session.append(user("boats " * 5_000), user("boats"))
    reranked(log, embedder(server))
    session.search("boats")
    assert max(len(item.body["inputText"]) for item in server.asked if "inputText" in item.body) == 2_000


@pytest.mark.network
def test_what_is_asked_of_each_model(server: ModelServer) -> None:
    """Titan takes one text a call, and only its second version knows of dimensions; Cohere takes many and their kind."""
    assert embedder(server, TITAN).embed(["a ship", "b"]) == [[1.0, 0.0, 0.1], [0.0, 0.0, 0.1]]
    bodies = sorted((asked.body for asked in server.asked), key=lambda body: str(body["inputText"]))
    assert bodies == [{"inputText": text, "dimensions": 256, "normalize": True} for text in ("a ship", "b")]
    assert {asked.headers["Content-Type"] for asked in server.asked} == {"application/json"}
    server.asked.clear()
    embedder(server, "amazon.titan-embed-text-v1").embed(["a"])
    assert [asked.body for asked in server.asked] == [{"inputText": "a"}]
    for as_question, kind in ((True, "search_query"), (False, "search_document")):
        server.asked.clear()
        embedder(server, COHERE).embed(["a", "b"], as_question=as_question)
        assert [asked.body for asked in server.asked] == [{"texts": ["a", "b"], "input_type": kind, "truncate": "END"}]
    server.asked.clear()
    for model in (TITAN, COHERE):
        assert embedder(server, model).embed([]) == []
    assert server.asked == []


@pytest.mark.network
@pytest.mark.parametrize("count", [MAX_TEXTS - 1, MAX_TEXTS, MAX_TEXTS + 1, 2 * MAX_TEXTS + 1])
def test_many_texts_have_their_vectors_in_order(server: ModelServer, count: int) -> None:
    texts = [("ship", "paid", "other")[at % 3] for at in range(count)]
    assert embedder(server, COHERE).embed(texts) == [vector(text) for text in texts]
    assert len(server.asked) == -(-count // MAX_TEXTS)


@pytest.mark.network
@pytest.mark.parametrize(
    ("value", "is_read"), [([0, 1.5], True), ([True], False), ([None], False), (["1"], False), (1.5, False), ([], True)]
)
def test_a_vector_has_numbers_only(server: ModelServer, value: Any, is_read: bool) -> None:
    server.plan = [Reply(raw=json.dumps({"embeddings": [value]}).encode())]
    if is_read:
        assert embedder(server, COHERE).embed(["a"]) == [value]
        return
    with pytest.raises(UnavailableError) as raised:
        embedder(server, COHERE).embed(["a"])
    assert raised.value.error_code == "embedder_unreadable"


@pytest.mark.network
@pytest.mark.parametrize("left", [0.0, -1.0, 0.3])
def test_vectors_are_not_waited_for_behind_the_deadline(server: ModelServer, left: float) -> None:
    server.plan = lambda asked: Reply(raw=b"{}", wait_seconds=60)
    begun = time.monotonic()
    with with_deadline(lambda: left), pytest.raises(UnavailableError) as raised:
        embedder(server, COHERE).embed(["a"])
    assert time.monotonic() - begun < 30, "not the model's 60"
    assert raised.value.error_code in ("embedder_timeout", "deadline")


# ------------------------------------------------------------ its faults


def refused(status: int, code: str) -> Reply:
    """Providers repeat what was sent in what they say of it."""
    repeated = json.dumps({"message": f"of {CANARY}"}).encode()
    return Reply(status=status, headers={"x-amzn-ErrorType": code}, raw=repeated)


FAULTS: Sequence[tuple[Reply, type[TurnlogError], str]] = [
    (refused(429, "ThrottlingException"), ThrottledError, "throttled"),
    (
        refused(500, "InternalServerException"),
        UnavailableError,
        "unavailable",
    ),
    (
        refused(424, "ModelErrorException"),
        UnavailableError,
        "unavailable",
    ),
    (
        refused(403, "AccessDeniedException"),
        EmbedderConfigError,
        "embedder_misconfigured",
    ),
    (
        refused(404, "ResourceNotFoundException"),
        EmbedderConfigError,
        "embedder_misconfigured",
    ),
    (Reply(raw=b"<html>"), UnavailableError, "embedder_unreadable"),
    (Reply(raw=b"[]"), UnavailableError, "embedder_unreadable"),
    (Reply(raw=b'{"embedding": ["x"]}'), UnavailableError, "embedder_unreadable"),
    (Reply(raw=b'{"embedding": [NaN]}'), UnavailableError, "embedder_unreadable"),
    (Reply(raw=b'{"embedding": {"x": 1}}'), UnavailableError, "embedder_unreadable"),
]


@pytest.mark.network
@pytest.mark.parametrize(("fault", "kind", "code"), FAULTS, ids=[f"{fault[0].status} {fault[2]}" for fault in FAULTS])
def test_a_fault_leaves_the_order_of_the_words_and_is_told(
    log: Turnlog,
    server: ModelServer,
    caplog: pytest.LogCaptureFixture,
    fault: Reply,
    kind: type[TurnlogError],
    code: str,
) -> None:
    session = spoken(log)
    by_words = session.search("sum ship")
    server.plan = [fault]
    with pytest.raises(kind) as raised:
        embedder(server).embed([CANARY])
    assert raised.value.error_code == code and CANARY not in repr(raised.value) + str(raised.value)
    reranked(log, embedder(server))
    with caplog.at_level(logging.WARNING):
        answer = session.search("sum ship")
    assert (answer.reranking, answer.results) == ("failed", by_words.results)
    assert code in caplog.text and CANARY not in caplog.text
    assert log.search("sum ship").reranking == "failed"


@pytest.mark.network
def test_vectors_of_other_lengths_and_too_few_of_them_are_no_answer(server: ModelServer) -> None:
    for answer in ({"embeddings": [[1.0], [1.0, 2.0]]}, {"embeddings": [[1.0]]}, {"embeddings": []}):
        server.plan = [Reply(raw=json.dumps(answer).encode())]
        with pytest.raises(UnavailableError):
            embedder(server, COHERE).embed(["a", "b"])
    server.plan = [Reply(raw=json.dumps({"embeddings": {"float": [[1.0], [2.0]]}}).encode())]
    assert embedder(server, COHERE).embed(["a", "b"]) == [[1.0], [2.0]]


@pytest.mark.network
def test_a_slow_model_is_not_waited_for(log: Turnlog, server: ModelServer) -> None:
    session = spoken(log)
    by_words = session.search("sum ship").results
    server.plan = lambda asked: Reply(raw=b"{}", wait_seconds=60)
    reranked(log, embedder(server, timeout_seconds=1))
    begun = time.monotonic()
    answer = session.search("sum ship")
    assert time.monotonic() - begun < 40, "not the model's 60"
    assert (answer.reranking, answer.results) == ("failed", by_words)


@pytest.mark.network
def test_without_a_server_or_credentials_the_order_is_that_of_the_words(
    log: Turnlog, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spoken(log)
    by_words = session.search("sum ship").results
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    reranked(log, embedder(server))
    answer = session.search("sum ship")
    assert (answer.reranking, answer.results) == ("failed", by_words)
    assert server.asked == []


# ------------------------------------------------------------ settings


def test_it_is_off_unless_a_model_is_named() -> None:
    assert make_embedder(Settings()) is None
    settings = Settings.from_environment({"TURNLOG_RERANK_MODEL": TITAN, "TURNLOG_RERANK_TIMEOUT_SECONDS": "2"})
    made = make_embedder(settings)
    assert made is not None and made.name == f"bedrock:{TITAN}"
    with pytest.raises(InvalidInputError):
        Settings.from_environment({"TURNLOG_RERANK_MODEL": "amazon.nova-lite-v1:0"})
    with pytest.raises(EmbedderConfigError):
        BedrockEmbedder(Clients("eu-central-1"), "amazon.nova-lite-v1:0", timeout_seconds=1)
