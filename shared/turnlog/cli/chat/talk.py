"""The chat loop over `session.run`: after an interruption at any point, another process can continue it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from turnlog.agents import Hooks, RequestedCall, Run, RunResult
from turnlog.agents.streams import accumulator, as_mapping
from turnlog.cli.chat.models import Model
from turnlog.cli.screen import (
    Output,
    console,
    counted,
    decode_input,
    format_number,
    message_text,
    one_line,
    plain,
    print_json,
)
from turnlog.cli.window_tables import window_table
from turnlog.client.conversation import context_options
from turnlog.client.finding import recall_place, recalled_text, search_text
from turnlog.client.model import Session
from turnlog.core.agent_state import pending_of
from turnlog.core.calls import is_ref
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError, TurnlogError
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.messages import Message
from turnlog.providers.registry import codec_of
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import StoredMessage

HELP = (
    ("/history [N]", "the newest N messages in view (10)"),
    ("/window", "the window of the next model call"),
    ("/search WORDS", "messages of this session by words"),
    ("/recall REF", "a tool call and its result"),
    ("/undo", "remove your newest message and everything after it from view; the log keeps it"),
    ("/go", "continue an interrupted answer"),
    ("/approve, /reject [REASON]", "decide the waiting call"),
    ("/reset", "end the session and create a new one with its settings"),
    ("/quit", "leave; exit and Ctrl-D do so too"),
)
_WAITS = "a call waits for a decision: /approve or /reject [REASON]"


Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Tools:
    """Functions as tools. ``functions`` validate their arguments; ``schemas`` are in OpenAI's chat format."""

    functions: Mapping[str, Function]
    schemas: Sequence[JsonObject]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a chat. ``asks``: names of tools whose calls need a decision. ``window``: options of windows."""

    asks: frozenset[str]
    max_iterations: int
    window: Mapping[str, Any]


class Talk:
    """A chat that reads lines until the input ends. Lines that begin with a slash are commands."""

    def __init__(self, session: Session, model: Model, tools: Tools, options: Options, screen: ChatScreen) -> None:
        self._model = model
        self._tools = tools
        self._options = options
        self._screen = screen
        self._watch = RunWatch(model.format, screen)
        self._unknown: InvalidInputError | None = None
        self._open(session)
        self._commands: Mapping[str, Callable[[str], Output | None]] = {
            "/help": lambda _: self._help(),
            "/history": self._history,
            "/window": lambda _: self._window(),
            "/search": self._search,
            "/recall": self._recall,
            "/undo": lambda _: self._undo(),
            "/go": lambda _: self._resume(),
            "/approve": lambda _: self._decide("approve", ""),
            "/reject": lambda reason: self._decide("reject", reason),
            "/reset": lambda _: self._reset(),
        }

    def _open(self, session: Session) -> None:
        options = self._options
        self.session = session
        self._run: Run = session.run(
            self._model.ask,
            self._tools.functions,
            format=self._model.format,
            max_iterations=options.max_iterations,
            approve=options.asks,
            hooks=[self._watch],
            **options.window,
        )

    def go(self) -> None:
        """Run the chat until the input ends. Without a person at a terminal an error ends it; an unknown command's comes last."""
        if self._screen.is_person:
            self._guarded(self._continue_open_run)
        while True:
            try:
                line = self._screen.line()
            except KeyboardInterrupt:
                if not self._screen.is_person:
                    raise
                self._screen.note("\n/quit or Ctrl-D leaves")
                continue
            if line is None or line.strip() in ("/quit", "/exit", "exit", "quit"):
                break
            if line.strip():
                self._guarded(lambda line=line: self._take(line))  # type: ignore[misc]
        if self._unknown is not None:
            raise self._unknown
        if not self._screen.is_person and _is_open(self._waiting()):
            raise ConflictError(_WAITS, code="waits_for_decision")

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run an action. For a person, errors are printed and the chat continues; Ctrl-C stops only the turn."""
        try:
            action()
        except (TurnlogError, OSError) as error:
            if not self._screen.is_person:
                raise
            code = f" ({error.error_code})" if isinstance(error, TurnlogError) else ""
            self._screen.note(f"{error}{code}", "red")
        except KeyboardInterrupt:
            if not self._screen.is_person:
                raise
            self._screen.note(
                "stopped: what came of the answer is stored, marked as interrupted; /go asks again", "yellow"
            )
        finally:
            self._screen.end_line()

    def _continue_open_run(self) -> None:
        if self._waiting() is not None:
            self._turn(self._run.resume)
        elif self._is_unfinished():
            self._screen.note("the newest message has no complete answer: /go asks for one", "yellow")

    def _take(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        command = self._commands.get(word)
        if command is not None:
            output = command(rest.strip())
            if output is not None:
                self._screen.print(output.shown)
                self._screen.answer({"command": word, **output.fields})
        elif word.startswith("/") and word[1:].isalpha():
            detail = f"there is no command {one_line(word, 40)}; /help lists them"
            unknown = InvalidInputError(detail, code="unknown_command")
            if self._screen.is_person:
                raise unknown
            self._unknown = self._unknown or unknown
        else:
            self._say(line)

    def _say(self, line: str) -> None:
        """Send a message after continuing a decided call. Raises `ConflictError` while a call waits for a decision."""
        waiting = self._waiting()
        if _is_open(waiting):
            raise ConflictError(_WAITS, code="waits_for_decision")
        if waiting is None or self._turn(self._run.resume).status != "pending":
            self._turn(lambda: self._run.send(line))

    def _turn(self, act: Callable[[], RunResult]) -> RunResult:
        """Run the agent until the model has answered or a call stays undecided, and return the last result."""
        outcome = self._show_outcome(act())
        while outcome.status == "pending" and self._screen.is_person:
            decision = self._ask_person(outcome.pending or {})
            if decision is None:
                self._screen.note(_WAITS, "yellow")
                return outcome
            approved, reason = decision
            self.session.decide_pending("approve" if approved else "reject", reason=reason or None)
            outcome = self._show_outcome(self._run.resume())
        return outcome

    def _show_outcome(self, outcome: RunResult) -> RunResult:
        screen, window = self._screen, self._watch.window
        if outcome.status == "max_iterations":
            screen.note(f"stopped after {outcome.iterations} model calls, the limit of --max-iterations", "yellow")
        elif outcome.status == "cancelled":
            screen.note("another process cancelled the run", "yellow")
        elif outcome.status == "idle":
            screen.note("there is nothing to answer")
        elif outcome.status == "pending" and not screen.is_person:
            screen.note(f"{self._call_line(outcome.pending or {})}\n{_WAITS}", "yellow")
        sizes = None
        if window is not None:
            sizes = {"tokens": window.tokens, "budget": window.manifest.budget.tokens}
            sizes["stable_tokens"] = window.prefix.stable_tokens
            screen.note(
                f"window {format_number(sizes['tokens'])} of {format_number(sizes['budget'])} tokens, "
                f"{format_number(sizes['stable_tokens'])} unchanged since the last call; "
                f"call {outcome.iterations} of this run"
            )
        result = {name: getattr(outcome, name) for name in ("status", "text", "run_id", "iterations")}
        pending = dict(outcome.pending) if outcome.pending else None
        screen.answer({"session_id": self.session.id, **result, "pending": pending, "window": sizes})
        return outcome

    def _ask_person(self, pending: Mapping[str, Any]) -> tuple[bool, str] | None:
        """Ask the person to decide a call. Returns approval and reason, or None when it stays open."""
        self._screen.note(self._call_line(pending), "magenta")
        while True:
            try:
                line = self._screen.line("run it? y, or n and why> ")
            except KeyboardInterrupt:
                return None
            if line is None:
                return None
            word, _, why = line.strip().partition(" ")
            if word.lower() in ("y", "yes", "n", "no"):
                return word.lower().startswith("y"), why.strip()

    def _call_line(self, pending: Mapping[str, Any]) -> str:
        ref = pending.get("ref")
        if not isinstance(ref, str) or not is_ref(ref):
            return f"? {pending.get('name') or pending}"  # set by other code than a run
        recalled = self.session.recall(ref, max_tokens=2_000)
        arguments = recalled.arguments
        text = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
        return f"? {recalled.name}({text})"

    def _resume(self) -> None:
        self._turn(self._run.resume)

    def _decide(self, decision: Literal["approve", "reject"], reason: str) -> None:
        waiting = self._waiting()
        if waiting is None or _is_open(waiting):
            self.session.decide_pending(decision, reason=reason or None)
        self._turn(self._run.resume)

    def _waiting(self) -> Mapping[str, Any] | None:
        """Return the pending call, decided or not, whose run has not continued; None when there is none."""
        try:
            return pending_of(self.session.agent().state)
        except NotFoundError as error:
            if error.error_code != "not_found":
                raise
            return None

    def _is_unfinished(self) -> bool:
        page = self.session.page(order="desc", limit=1, in_view=True)
        if not page.messages or page.messages[0].origin is not None:
            return False
        message = _message(page.messages[0])
        return page.messages[0].status == "interrupted" or message.role in ("user", "tool") or bool(message.tool_calls)

    def _help(self) -> Output:
        wide = max(len(name) for name, _ in HELP)
        return Output({"commands": dict(HELP)}, "\n".join(f"{name:{wide}}  {what}" for name, what in HELP))

    def _history(self, argument: str) -> Output:
        limit = int(argument[:9]) if argument.isascii() and argument.isdigit() else 10
        newest = list(islice(self.session.messages(order="desc", in_view=True), max(limit, 1)))
        shown, entries = list[Text](), list[JsonObject]()
        for message in reversed(newest):
            mark = "  interrupted" if message.status == "interrupted" else ""
            shown.append(message_text(message.body, heading=f"{message.position:>5}{mark}"))
            entries.append({"position": message.position, "status": message.status, "body": dict(message.body)})
        return Output({"messages": entries}, Group(*shown))

    def _window(self) -> Output:
        window = self.session.context(format=self._model.format, **context_options(self._options.window))
        return Output({"window": window.model_dump(mode="json")}, window_table(window))

    def _search(self, words: str) -> Output:
        answer = self.session.search(words)
        return Output(answer, plain(search_text(answer)))

    def _recall(self, ref: str) -> Output:
        answer = recall_place(self.session, ref)
        return Output(answer, plain(recalled_text(answer)))

    def _undo(self) -> Output:
        """Rewind to before the newest user message in view."""
        for stored in self.session.messages(order="desc", in_view=True):
            message = _message(stored)
            if stored.origin is None and message.role == "user" and not message.tool_results:
                info = self.session.rewind(stored.position - 1)
                shown = f"back before {stored.position}: {counted(info.messages, 'message')} in view"
                return Output({"to": stored.position - 1, "messages": info.messages}, Text(shown, style="dim"))
        raise InvalidInputError("there is nothing to undo", code="nothing_to_undo")

    def _reset(self) -> Output:
        before = self.session.id
        self._open(self.session.reset())
        shown = Text(f"{before} has ended; {self.session.id} is in its place", style="dim")
        return Output({"session_id": self.session.id, "ended": before}, shown)


def _is_open(waiting: Mapping[str, Any] | None) -> bool:
    """Return whether a call waits that has no decision."""
    return waiting is not None and waiting.get("decision") is None


def _message(stored: StoredMessage) -> Message:
    return codec_of(stored.format).parse(stored.body)


class ChatScreen:
    """Reads lines and writes answers in a chat. ``is_person``: input is a terminal, so questions can be asked.

    With ``json``, only the values of `answer` are written.
    """

    def __init__(self, *, json: bool = False) -> None:
        self.is_person = sys.stdin.isatty() and not json
        self._json = json
        self._is_mid_line = False
        if self.is_person:
            with suppress(ImportError):
                import readline  # noqa: F401 - adds line editing and history to `input`

    def line(self, prompt: str = "you> ") -> str | None:
        """Read the next line, joined with the following one while it ends with a backslash; None at the end of input."""
        lines = list[str]()
        while True:
            text = self._line(prompt if not lines else "...> ")
            if text is None:
                return "\n".join(lines) if lines else None
            if not text.endswith("\\"):
                return "\n".join([*lines, text])
            lines.append(text[:-1])

    def _line(self, prompt: str) -> str | None:
        if self.is_person:
            try:
                return input(prompt)
            except EOFError:
                sys.stdout.write("\n")
                return None
        text = decode_input(sys.stdin.buffer.readline(), "a line of stdin")
        return text.rstrip("\r\n") if text else None

    def write_reply(self, text: str) -> None:
        """Write a piece of the model's answer."""
        if not self._json and text:
            safe = plain(text)
            sys.stdout.write(safe)
            sys.stdout.flush()
            self._is_mid_line = not safe.endswith("\n")

    def note(self, text: str, style: str = "dim") -> None:
        """Write a line that is not part of the model's answer."""
        self.print(Text(plain(text), style=style))

    def print(self, renderable: RenderableType) -> None:
        """Write output for people only; nothing with ``json``."""
        if not self._json:
            self.end_line()
            console().print(renderable, soft_wrap=True)

    def answer(self, value: Any) -> None:
        """Write one JSON value as a line, only with ``json``."""
        if self._json:
            print_json(value, indent=None)

    def end_line(self) -> None:
        if self._is_mid_line:
            sys.stdout.write("\n")
            self._is_mid_line = False


class RunWatch(Hooks):
    """Shows a run on the screen. ``window`` is that of the newest model call."""

    def __init__(self, format: str, screen: ChatScreen) -> None:
        self.window: WindowAnswer | None = None
        self._format = format
        self._screen = screen
        self._reply = accumulator(format)
        self._shown = 0

    def before_model(self, window: WindowAnswer) -> None:
        self.window = window
        self._reply, self._shown = accumulator(self._format), 0

    def on_event(self, event: Any) -> None:
        self._reply.add(as_mapping(event))
        text = self._reply.text
        self._screen.write_reply(text[self._shown :])
        self._shown = len(text)

    def after_model(self, messages: Sequence[Mapping[str, Any]]) -> None:
        if not self._shown:
            texts = [codec_of(self._format).parse(dict(message)).text for message in messages]
            self._screen.write_reply("\n".join(texts))
        self._screen.end_line()

    def before_tool(self, call: RequestedCall) -> None:
        self._screen.note(f"→ {call.name}({one_line(call.arguments, 300)})", "magenta")

    def after_tool(self, call: RequestedCall, result: str, is_error: bool) -> None:
        self._screen.note(f"{'✗' if is_error else '←'} {one_line(result, 300)}", "red" if is_error else "dim")
