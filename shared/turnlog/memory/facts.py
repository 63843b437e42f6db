"""Make facts of a conversation: by rules, by a model, or by a model within a budget of tokens.

The rules take plain sentences of users about themselves, verbatim, and identifiers that users gave to tools, in English and
Chinese. A missed fact is better than noise: only the forms below are taken, from short clauses of users. Questions, quotations
and pasted documents yield no facts. A model takes one call for a stretch of a conversation; its answer is checked.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, cast, get_args

from turnlog.core.errors import SummaryRefusedError
from turnlog.core.json_values import sendable_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import batches
from turnlog.core.memory import MadeFacts, MemoryFact, MemoryKind, SpokenMessage
from turnlog.memory.embedded import claim_of, normal
from turnlog.ports import ChatModel, FactMaker, ModelAnswer, Prompt, TokenCounter
from turnlog.providers.blocks import fenced
from turnlog.summaries.budget import Spending
from turnlog.windows.ledger import is_said, values_of
from turnlog.windows.text import one_line

MAX_MESSAGE_CHARS = 2_000
"""Longer messages are taken for documents, in which "I" may be anyone."""
_LONGEST_CLAUSE = 160
_MAX_USER_TEXTS = 400
_SENTENCE = re.compile(r"[^.!?。！？\n;；]+(?:\.(?=\w)[^.!?。！？\n;；]+)*[.!?。！？]*")
_QUOTED = re.compile(r"^\s*(?:>|\||#|[-*]\s|\d+[.)]\s|\w+:\s)")
_QUOTATION = re.compile(
    r"(?<!\w)\"[^\"]*\"|(?<!\w)'[^'\n]*'(?!\w)|“[^”]*”|‘[^’\n]*’(?!\w)|「[^」]*」|『[^』]*』|«[^»]*»"
)
_CODE = re.compile(r"```.*?(?:```|$)|`[^`]*`|<[^>]+>|https?://\S+|[\ue000-\uf8ff]", re.DOTALL)
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
_ZH_LEAD = re.compile(
    r"^(?:(?:嗯+|哦+|啊+|好的?|是的?|对|那|你好|您好|其实|不过|但是?|而且|因为|所以|另外|还有|对了|没错|当然|谢谢你?|哈哈+|最近|现在|嗨|唉|可是|然后|记住)[，,！!。、\s~]*)+(?=我|咱|请|就)"
)
_DENIAL = re.compile(
    r"(?P<who>I(?: am|['’]?m)?|my [\w ]{1,40}? (?:is|are)) (?P<no>no longer|not|do not|don['’]t) "
    r"(?P<what>.+?)(?P<more> any ?more)?$",
    re.IGNORECASE,
)
_ZH_DENIAL = re.compile(r"^(我\w{0,12}?)(?:不再|不)(\w+?)了?$")
_HAN = re.compile(r"[\u3400-\u9fff]")
_HELD_KEY = re.compile(
    r"(?:(?:user|customer|member|account|employee|patient|student|loyalty|passport)_?(?:id|number|no)|(?:user_|customer_)?e?mail|"
    r"(?:phone|mobile)(?:_number)?|zip(?:_?code)?|(?:postal|post)_?code|(?:first|last|full|user)_?name|date_of_birth|dob|address)"
)
_OWN = re.compile(r"\b(?:my|mine|i am|i'm|i’m|this is|me)\b|我", re.IGNORECASE)
_BARE_CHARS = 60
"""Characters beside a value up to which a message counts as the answer to a question for it."""
_CALL = re.compile(r"^[\w.-]{1,64} (\{.*\})$", re.MULTILINE)
MAX_FACTS = 40
"""Facts taken from one call."""
_USER_CHARS, _AGENT_CHARS = 600, 200
_FACT_CHARS, _SUBJECT_CHARS = 300, 80
_MAX_TOKENS = 4_096
_NONE = "none"
_DIGITS = re.compile(r"\d+")
STRETCH_CHARS = 60_000
"""Characters of messages in one model call; of each message at most `MESSAGE_CHARS` count."""
MAX_CALLS = 2
"""Model calls for one part of a session, within the worker's time. Rules read the rest of the part."""
MESSAGE_CHARS = 600
_PROMPT_TOKENS, _ANSWER_TOKENS, _LINE_TOKENS = 500, 1_000, 6
MakeFacts = Callable[[str, Iterable[SpokenMessage]], MadeFacts]
"""Makes facts of messages for a tenant, whose budget pays for a model's tokens."""
_log = logging.getLogger("turnlog")


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


class SentenceFacts:
    """Implements `FactMaker` with rules."""

    name = "sentences-1"

    def facts(self, messages: Iterable[SpokenMessage]) -> MadeFacts:
        """Return the facts of messages, in the order of their positions."""
        facts, user_messages = dict[tuple[str, int], MemoryFact](), list[SpokenMessage]()
        for message in messages:
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
        statement = _statement(clause)
        if statement is None and (denied := _denied(clause)) and (statement := _statement(denied)):
            kind, subject = statement
            statement = kind, subject if subject.startswith(("like ", "喜欢")) else claim_of(denied)
        if statement is not None:
            yield MemoryFact(statement[0], clause, statement[1], message.position, message.time_ms)


def _statement(clause: str) -> tuple[MemoryKind, str] | None:
    """Return the kind and the subject of the first rule that a clause has the form of."""
    for rule in _rules("chinese" if _HAN.search(clause) else "english"):
        match = rule.pattern.match(clause)
        if match is not None:
            about = match.groupdict().get("o") or ""
            return rule.kind, rule.subject.format(o=normal(about)) if about or "{o}" not in rule.subject else ""
    return None


def _denied(clause: str) -> str | None:
    """Return the statement that a clause denies, or None. ``I am not a lawyer`` denies nothing; ``I am no longer one`` does."""
    match = _ZH_DENIAL.match(clause) or _DENIAL.match(clause)
    if match is None:
        return None
    if match.re is _ZH_DENIAL:
        return match[1] + match[2]
    is_disclaimer = match["no"].lower() == "not" and match["what"].startswith(("a ", "an ")) and not match["more"]
    return None if is_disclaimer else f"{match['who']} {match['what']}"


def _clauses(text: str) -> Iterator[str]:
    """Yield the clauses of statements, without opening words and closing punctuation.

    A quotation stays whole, so no clause begins within it: others may have said it.
    """
    quotations = list[str]()

    def hide(match: re.Match[str]) -> str:
        quotations.append(match[0])
        return chr(0xE000 + len(quotations) - 1)

    hidden = _QUOTATION.sub(hide, text)
    for clause in _plain_clauses(hidden):
        yield re.sub("[\ue000-\uf8ff]", lambda char: quotations[ord(char[0]) - 0xE000], clause)


def _plain_clauses(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if _QUOTED.match(line):
            continue
        for sentence in _SENTENCE.findall(line):
            if sentence.rstrip().endswith(("?", "？")):
                continue
            is_chinese = _HAN.search(sentence) is not None
            parts = re.split(r"[,，:：]", sentence) if is_chinese else _SPLIT.split(sentence)
            for part in parts:
                clause = (_ZH_LEAD if is_chinese else _LEAD).sub("", part.strip().strip("~～ *_()（）"))
                clause = clause.strip().rstrip('。.!！~～,，"”')
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
    """Return whether a user's message gives the value as the user's own, or as an answer."""
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


class ModelFacts:
    """Implements `FactMaker` with a chat model.

    A fact is dropped when its message was not in the call, is not the user's, or lacks an identifier or number of the fact.
    """

    def __init__(self, model: ChatModel, counter: TokenCounter) -> None:
        self._model = model
        self._counter = counter

    @property
    def name(self) -> str:
        return self._model.name

    def facts(self, messages: Iterable[SpokenMessage]) -> MadeFacts:
        """Return the facts of messages. Raises `SummaryRefusedError`, with the tokens spent, for an unusable answer."""
        spoken = [message for message in messages if message.role in ("user", "assistant")]
        if not any(message.role == "user" for message in spoken):
            return MadeFacts(())
        prompt = prompt_for(spoken)
        answer = self._model.answer(prompt, max_tokens=_MAX_TOKENS)
        spent_in, spent_out = answer.input_tokens, answer.output_tokens
        if spent_in is None:
            spent_in = self._counter.count(prompt.system) + self._counter.count(prompt.record)
        if spent_out is None:
            spent_out = self._counter.count(answer.text)
        facts = read_facts(answer, spoken)
        if facts is None:
            raise SummaryRefusedError(
                f"the answer of {self.name} is no list of facts",
                details={"reason": "no_facts", "input_tokens": spent_in, "output_tokens": spent_out},
            )
        return MadeFacts(tuple(sorted(facts, key=lambda fact: fact.position)), spent_in, spent_out)


def prompt_for(messages: Sequence[SpokenMessage]) -> Prompt:
    """Return the prompt: the rules, and a record with a line per message, quoted as data."""
    lines = [
        f"{message.position} person: {one_line(message.text, _USER_CHARS)}"
        if message.role == "user"
        else f"{message.position} agent: {one_line(message.text, _AGENT_CHARS)}"
        for message in messages
    ]
    record = sendable_text(fenced("record of the conversation", "\n".join(lines)))
    return Prompt(_instructions().substitute(limit=MAX_FACTS), record, 0)


@cache
def _instructions() -> Template:
    return Template(files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8").strip())


def read_facts(answer: ModelAnswer, messages: Sequence[SpokenMessage]) -> list[MemoryFact] | None:
    """Return the facts of an answer; None when it is no list of facts. Of a truncated answer, the complete lines count."""
    if answer.ending == "filtered":
        return None
    by_position = {message.position: message for message in messages if message.role == "user"}
    facts, is_list = list[MemoryFact](), answer.text.strip().strip(".").casefold() == _NONE
    for line in answer.text.splitlines():
        try:
            row = json.loads(line.strip().rstrip(","))
        except (ValueError, RecursionError):
            continue
        if not isinstance(row, dict):
            continue
        is_list = True
        fact = _fact(row, by_position)
        if fact is not None and len(facts) < MAX_FACTS:
            facts.append(fact)
    return facts if is_list else None


def _fact(row: dict[str, Any], by_position: dict[int, SpokenMessage]) -> MemoryFact | None:
    kind, subject, text = row.get("kind"), row.get("subject"), row.get("fact")
    position = row.get("position")
    source = by_position.get(position) if type(position) is int else None
    if source is None or kind not in get_args(MemoryKind) or not isinstance(text, str) or not isinstance(subject, str):
        return None
    text, subject = " ".join(text.split()), " ".join(subject.split()).casefold()
    if not 2 <= len(text) <= _FACT_CHARS or any(not is_said(value, source.text) for value in values_of(text)):
        return None
    if not set(_DIGITS.findall(text)) <= set(_DIGITS.findall(source.text)):
        return None
    return MemoryFact(cast("MemoryKind", kind), text, subject[:_SUBJECT_CHARS], source.position, source.time_ms)


def without_cost(maker: FactMaker) -> MakeFacts:
    """Return a maker of facts that costs no tokens, such as rules."""
    return lambda _tenant_id, messages: maker.facts(messages)


@lazy_dataclass(frozen=True, slots=True)
class FactsWithinBudget:
    """Makes facts with ``model``; with ``rules`` when the tenant's daily tokens are spent or the answer is refused.

    Outages and wrong settings are raised: facts that rules have made are never made again by the model.
    """

    model: FactMaker
    rules: FactMaker
    spending: Spending
    counter: TokenCounter
    tokens_per_day: int

    def __call__(self, tenant_id: str, messages: Iterable[SpokenMessage]) -> MadeFacts:
        """Return the facts of messages, with the tokens spent on them."""
        facts, spent = list[MemoryFact](), [0, 0]
        for number, stretch in enumerate(stretches(messages)):
            new = self._facts_of_stretch(tenant_id, stretch) if number < MAX_CALLS else self.rules.facts(stretch)
            facts += new.facts
            spent = [spent[0] + new.input_tokens, spent[1] + new.output_tokens]
        return MadeFacts(tuple(facts), *spent)

    def _facts_of_stretch(self, tenant_id: str, messages: list[SpokenMessage]) -> MadeFacts:
        tokens = _PROMPT_TOKENS + _ANSWER_TOKENS
        tokens += sum(self.counter.count(message.text[:MESSAGE_CHARS]) + _LINE_TOKENS for message in messages)
        try:
            facts = self.spending.charge(
                tenant_id, tokens, lambda: self.model.facts(messages), limit=self.tokens_per_day
            )
        except SummaryRefusedError as error:
            return self._by_rules(messages, error.reason)
        return facts if facts is not None else self._by_rules(messages, "over_budget")

    def _by_rules(self, messages: list[SpokenMessage], reason: str) -> MadeFacts:
        _log.info("facts are not by %s: %s", self.model.name, reason)
        return self.rules.facts(messages)


def stretches(messages: Iterable[SpokenMessage]) -> Iterator[list[SpokenMessage]]:
    """Yield the messages in runs that fit into one model call."""
    return batches(messages, lambda message: min(len(message.text), MESSAGE_CHARS), max_size=STRETCH_CHARS)
