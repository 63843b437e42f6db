"""Make facts without a model: plain sentences of users about themselves, verbatim, and identifiers that users gave to tools.

English and Chinese. A missed fact is better than noise: only the forms below are taken, from short clauses of users.
Questions, quotations and pasted documents yield no facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, cast

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import MadeFacts, MemoryFact, MemoryKind, SpokenMessage
from turnlog.memory.profile import normal
from turnlog.windows.ledger import is_said

MAX_MESSAGE_CHARS = 2_000
"""Longer messages are taken for documents, in which "I" may be anyone."""
_LONGEST_CLAUSE = 160
_MAX_USER_TEXTS = 400
_SENTENCE = re.compile(r"[^.!?。！？\n;；]+(?:\.(?=\w)[^.!?。！？\n;；]+)*[.!?。！？]*")
_QUOTED = re.compile(r"^\s*(?:>|\||#|[-*]\s|\d+[.)]\s|[\"“「『'].*[\"”」』']\s*$|\w+:\s)")
_CODE = re.compile(r"```.*?(?:```|$)|`[^`]*`|<[^>]+>|https?://\S+", re.DOTALL)
_LEAD = re.compile(
    r"^(?:(?:well|oh|hey|hi|hello|yes|yeah|yep|yup|no|nope|ok|okay|sure|so|and|but|also|btw|by the way|fyi|actually|honestly|"
    r"personally|sorry|thanks|thank you|please note(?: that)?|note that|remember(?: that)?|just so you know|for the record|"
    r"as you know|haha|lol|wow|cool|great|nice|right|anyway|besides|plus|because|since|\w+(?= -))[\s,!:-]+)+",
    re.IGNORECASE,
)
_SPLIT = re.compile(
    r"[,，]?\s+and\s+(?=(?:I|I'm|I’m|my|it|it's|they|we|he|she|the|that)\s)|"
    r"[,，]\s*(?:but|and|so|because|which|although|though|I'm|I’m|"
    r"(?=my\s|I\s))\s*|\s+-+\s+|\s*—\s*|…|\.\.\."
)


@lazy_dataclass(frozen=True, slots=True)
class _Rule:
    """A form of sentence, the kind of its facts, and the subject under which a newer fact replaces an older one."""

    kind: MemoryKind
    pattern: re.Pattern[str]
    subject: str
    """``{o}`` stands for the pattern's group ``o``. Facts with an empty subject never replace one another."""


@cache
def _rules(language: str) -> tuple[_Rule, ...]:
    """Return the rules of a language, read from its file."""
    names, rules = dict[str, str](), list[_Rule]()
    text = files(__package__).joinpath(f"{language}.txt").read_text(encoding="utf-8")
    for line in re.sub(r"\n +", "", text).splitlines():
        if not line or line.startswith("#"):
            continue
        head, _, pattern = line.partition(" = " if line.startswith("<") else ") ")
        for name, value in names.items():
            pattern = pattern.replace(name, value)
        if head.startswith("<"):
            names[head] = pattern
        else:
            kind, _, subject = head.partition(" (")
            rules.append(_Rule(cast("MemoryKind", kind), re.compile(pattern, re.IGNORECASE), subject))
    return tuple(rules)


_ZH_LEAD = re.compile(
    r"^(?:(?:嗯+|哦+|啊+|好的?|是的?|对|那|你好|您好|其实|不过|但是?|而且|因为|所以|另外|还有|对了|没错|当然|谢谢你?|哈哈+|最近|现在|嗨|唉|可是|然后|记住)[，,！!。、\s~]*)+(?=我|咱|请|就)"
)
_HAN = re.compile(r"[\u3400-\u9fff]")
_HELD_KEY = re.compile(
    r"(?:(?:user|customer|member|account|employee|patient|student|loyalty|passport)_?(?:id|number|no)|(?:user_|customer_)?e?mail|"
    r"(?:phone|mobile)(?:_number)?|zip(?:_?code)?|(?:postal|post)_?code|(?:first|last|full|user)_?name|date_of_birth|dob|address)"
)
_OWN = re.compile(r"\b(?:my|mine|i am|i'm|i’m|this is|me)\b|我", re.IGNORECASE)
_BARE_CHARS = 60
"""Characters beside a value up to which a message counts as the answer to a question for it."""
_CALL = re.compile(r"^[\w.-]{1,64} (\{.*\})$", re.MULTILINE)


class SentenceFacts:
    """Implements `FactMaker` with rules."""

    name = "sentences-1"

    def facts(self, said: Iterable[SpokenMessage]) -> MadeFacts:
        """Return the facts of messages, in the order of their positions."""
        facts, user_messages = dict[tuple[str, int], MemoryFact](), list[SpokenMessage]()
        for message in said:
            if message.role == "user":
                user_messages = [*user_messages[1 - _MAX_USER_TEXTS :], message]
                message_facts = facts_in(message)
            else:
                message_facts = _facts_of_calls(message, user_messages, list(facts.values()))
            for fact in message_facts:
                facts.setdefault((normal(fact.text), fact.position), fact)
        return MadeFacts(tuple(sorted(facts.values(), key=lambda fact: fact.position)))


def facts_in(message: SpokenMessage) -> Iterator[MemoryFact]:
    """Yield the facts that a message states about its writer."""
    if len(message.text) > MAX_MESSAGE_CHARS:
        return
    for clause in _clauses(_CODE.sub(" ", message.text)):
        is_chinese = _HAN.search(clause) is not None
        for rule in _rules("chinese" if is_chinese else "english"):
            match = rule.pattern.match(clause)
            if match is None:
                continue
            about = match.groupdict().get("o") or ""
            subject = rule.subject.format(o=normal(about)) if about or "{o}" not in rule.subject else ""
            yield MemoryFact(rule.kind, clause, subject, message.position, message.time_ms)
            break


def _clauses(text: str) -> Iterator[str]:
    """Yield the clauses of statements, without opening words and closing punctuation."""
    for line in text.split("\n"):
        if _QUOTED.match(line):
            continue
        for sentence in _SENTENCE.findall(line):
            if sentence.rstrip().endswith(("?", "？")):
                continue
            is_chinese = _HAN.search(sentence) is not None
            parts = re.split(r"[,，:：]", sentence) if is_chinese else _SPLIT.split(sentence)
            for part in parts:
                clause = (_ZH_LEAD if is_chinese else _LEAD).sub("", part.strip().strip('~～ *_()（）"“”'))
                clause = clause.strip().rstrip("。.!！~～,，")
                if 3 <= len(clause) <= _LONGEST_CLAUSE:
                    yield clause


def _facts_of_calls(
    message: SpokenMessage, user_messages: list[SpokenMessage], known: list[MemoryFact]
) -> Iterator[MemoryFact]:
    """Yield identifiers of the user that a tool was called with, located at the user message that gave them.

    Values that a fact of the same message contains already are left out.
    """
    for call in _CALL.finditer(message.text):
        try:
            arguments = json.loads(call[1])
        except (ValueError, RecursionError):
            continue
        for key, value in _leaves(arguments):
            text = str(value)
            if not _HELD_KEY.fullmatch(key) or not 3 <= len(text) <= 80:
                continue
            source = next((candidate for candidate in reversed(user_messages) if _is_own(text, candidate.text)), None)
            if source is None or any(fact.position == source.position and is_said(text, fact.text) for fact in known):
                continue
            label = key.replace("_", " ")
            yield MemoryFact("entity", f"{label}: {text}", f"my {label}", source.position, source.time_ms)


def _is_own(value: str, text: str) -> bool:
    """Whether a user's message gives the value as the user's own, or as an answer."""
    if len(text) > MAX_MESSAGE_CHARS or not is_said(value, text):
        return False
    if len(text) - len(value) <= _BARE_CHARS:
        return True
    return any(is_said(value, sentence) and _OWN.search(sentence) for sentence in _SENTENCE.findall(text))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str | int]]:
    """Yield the texts and whole numbers of a JSON value, each with the name of its nearest field."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, str(name).casefold())
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        yield key, value
