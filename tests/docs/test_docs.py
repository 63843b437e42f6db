"""The documentation is true: what exists is documented, links lead somewhere, examples run, measured figures are measured again."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_args
from urllib.parse import parse_qsl

import pytest

from tests.http.events import event
from tests.support.python_blocks import run_alone
from tools.house import words
from turnlog import Session, Turnlog, build_window, steps
from turnlog.app import Application
from turnlog.client.documents import Documents
from turnlog.client.model import Sessions
from turnlog.core import errors
from turnlog.core.errors import BudgetTooSmallError, TurnlogError
from turnlog.core.loops import DISORDER
from turnlog.core.window_parts import BreakReason, PartKind, PartLevel, PrefixAnswer
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.http.lambda_api import make_handler
from turnlog.providers.cache_breakpoints import KINDS
from turnlog.providers.registry import CODECS
from turnlog.routing import ROUTES, Route
from turnlog.settings import PREFIX, Settings
from turnlog.summaries.summarisers import Reason
from turnlog.testing.fixed import FixedClock, SequentialIds
from turnlog.windows import policy as options
from turnlog.windows.policy import PRESETS
from turnlog.windows.registry import BUILT_IN
from turnlog.windows.steps import Step

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
"""Of the Python client, though it is an adapter: no service answers with its errors."""
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*.md")])
WRITTEN = [*PAGES, *DOCS.glob("images/*.svg")]
RUNNABLE = (
    "docs/how-to/engines.md",
    "docs/reference/policies.md",
    "docs/how-to/imports.md",
    "docs/how-to/graph-state.md",
    "docs/how-to/memory.md",
    "docs/how-to/streaming.md",
    "docs/how-to/agent-loop.md",
    "docs/how-to/client.md",
    "docs/how-to/patterns.md",
)
RUNNABLE_SECTIONS = ("docs/reference/policies.md", "docs/how-to/imports.md")
"""Pages of which a reader may paste one section alone."""
RECIPES = ("A new event", "A new policy step", "A new engine", "A new route", "A new adapter", "A new job")
SERVICE = (
    *("core", "engines", "http", "jobs", "log", "memory", "privacy", "providers", "search"),
    *("sessions", "snapshots", "summaries", "windows"),
)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def section(text: str, heading: str) -> str:
    """From a heading to the next one of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    rest = text[text.index(f"\n{heading}\n") + len(heading) + 2 :]
    end = re.search(rf"^#{{1,{level}}} ", re.sub(r"```.*?```", lambda item: "x" * len(item[0]), rest, flags=re.S), re.M)
    return rest[: end.start()] if end else rest


# ------------------------------------------------------------ what exists is documented


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_is_documented_with_its_fields_and_an_example(route: Route) -> None:
    text = page("docs/reference/api.md")
    listed = re.search(rf"^\| \[`{re.escape(route.key)}`\]\(#([a-z-]+)\) \|", text, re.M)
    assert listed, f"{route.key} is not in the table of routes"
    heading = next(
        line for line in text.splitlines() if re.match("### ", line) and anchor(line.lstrip("# ")) == listed[1]
    )
    own = section(text, heading)
    assert f"`{route.key}" in own
    sample = re.sub(r"\\\{\w+\\\}", r"[\\w-]+", re.escape(route.path))
    assert re.search(rf"```http\n{route.method} {sample}(\?|\n)", own), "no example"
    shared = section(text, "### Build a context") if route.name == "build_window" else ""
    fields = route.body.model_fields if route.body is not None else {}
    for field in [info.alias or name for name, info in fields.items()]:
        assert f"`{field}`" in own + shared, f"the field {field} is not documented"
    for parameter in route.parameters:
        assert f"`{parameter.name}`" in own, f"the parameter {parameter.name} is not documented"


def test_no_route_is_documented_that_is_not_there() -> None:
    shown = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/v1/[^`?]*)[`?]", page("docs/reference/api.md")))
    assert shown == {(route.method, route.path) for route in ROUTES}


def test_the_python_methods_of_the_routes_are_there() -> None:
    table = page("docs/reference/api.md").partition("\n## ")[0]
    methods = re.findall(r"^\| \[`[A-Z]+ .* `(\w+)\.(\w+)` \|$", table, re.M)
    places = {"log": Turnlog, "sessions": Sessions, "session": Session, "documents": Documents}
    assert len(methods) >= len(ROUTES) - 2  # a download and the API's own description are fetched by their addresses
    assert [(place, name) for place, name in methods if not callable(getattr(places[place], name, None))] == []


@pytest.mark.parametrize("code", sorted(DISORDER))
def test_every_warning_is_documented_in_its_own_words(code: str) -> None:
    assert f"| `{code}` | {DISORDER[code]} |" in section(page("docs/reference/api.md"), "## Warnings")


def codes_in(path: Path) -> set[str]:
    return set(re.findall(r'\bcode="([a-z_]+)"', path.read_text(encoding="utf-8")))


def error_codes() -> set[str]:
    """The codes of the error tree, and those that the service's modules give besides."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TurnlogError)]
    values = {kind.code for kind in kinds if kind is not TurnlogError}
    for package in SERVICE:
        for path in (ROOT / "shared" / "turnlog" / package).rglob("*.py"):
            values |= codes_in(path)
    translate = importlib.import_module("turnlog.engines.aws_errors")
    return values | {translate.DENIED, translate.MISSING, translate.REFUSED}


@pytest.mark.parametrize("code", sorted(error_codes() - {"invalid_settings", "invalid_step"}))
def test_every_error_code_is_documented(code: str) -> None:
    """``invalid_settings`` and ``invalid_step`` are of the start of a service: no route answers with them."""
    codes = re.findall(r"^\| [45][0-9]{2} \| (.+?) \|", section(page("docs/reference/api.md"), "## Errors"), re.M)
    assert f"`{code}`" in ", ".join(codes)


def client_codes() -> set[str]:
    """The codes that the Python client gives by itself."""
    client = ROOT / "shared" / "turnlog" / "client"
    return set().union(*map(codes_in, client.glob("*.py")))


@pytest.mark.parametrize("code", sorted(client_codes()))
def test_every_code_of_the_client_is_documented(code: str) -> None:
    codes = re.findall(r"^\| (`[a-z_`, ]+`) \| `\w+Error`", section(page("docs/how-to/client.md"), "## Errors"), re.M)
    assert f"`{code}`" in ", ".join(codes)


def command_names() -> list[str]:
    cli = importlib.import_module("turnlog.cli.app")
    typer_main = importlib.import_module("typer.main")
    return sorted(typer_main.get_command(cli.app).commands)


@pytest.mark.parametrize("command", command_names())
def test_every_command_is_documented_with_its_options(command: str) -> None:
    text = page("docs/reference/cli.md")
    assert f"(#turnlog-{command})" in text
    own = section(text, f"## turnlog {command}") + section(text, "## For all commands")
    typer_main = importlib.import_module("typer.main")
    cli = importlib.import_module("turnlog.cli.app")
    group = typer_main.get_command(cli.app).commands[command]
    below = getattr(group, "commands", {})
    for name in below:
        assert f"`turnlog {command} {name}" in own
    for parameter in [*group.params, *(param for match in below.values() for param in match.params)]:
        for option in [*parameter.opts, *parameter.secondary_opts]:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in own, f"{option} is not documented"


def test_every_name_that_steps_are_written_with_is_documented() -> None:
    own = section(page("docs/reference/policies.md"), "## Steps of your own")
    assert {name for name in steps.__all__ if not re.search(rf"`{name}[`(]", own)} == {"register_step"}


@pytest.mark.parametrize("option", sorted(options.FAMILY_OF))
def test_every_option_is_documented_with_its_default(option: str) -> None:
    model, policy = options.FAMILIES[options.FAMILY_OF[option]]
    parameter = next(name for name, field in model.model_fields.items() if option in (field.alias, name))
    default = inspect.signature(policy).parameters[parameter].default
    default = default * 1000 if option == "max_time_range" else default
    shown = "" if option == "buffer_config" else json.dumps(default)
    assert re.search(rf"^\| `{option}` \|\s*{re.escape(shown)}\s*\|", page("docs/reference/policies.md"), re.M)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_is_documented(preset: str) -> None:
    assert f"\n| `{preset}` |" in section(page("docs/reference/windows.md"), "## Policies")


@pytest.mark.parametrize("step", BUILT_IN, ids=lambda step: step.__name__)
def test_every_step_is_documented_with_its_fields(step: type[Step]) -> None:
    row = rf"^\| `{step.model_fields['step'].default}` \| (.*?) \|"
    fields = " ".join(re.findall(row, section(page("docs/reference/windows.md"), "### Steps"), re.M))
    assert fields
    for name, field in step.model_fields.items():
        assert name == "step" or f"`{field.alias or name}` ({field.default})" in fields


@pytest.mark.parametrize(("value", "names"), [("kind", get_args(PartKind)), ("level", get_args(PartLevel))])
def test_every_kind_and_level_of_a_part_is_documented(value: str, names: tuple[str, ...]) -> None:
    row = re.search(rf"^\| `{value}` \| (.*?) \|$", section(page("docs/reference/windows.md"), "## Manifest"), re.M)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == set(names)


def test_every_reason_of_a_break_is_documented_and_no_other() -> None:
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \|",
        section(page("docs/reference/windows.md"), "## What a prompt cache still has"),
        re.M,
    )
    reasons = [reason for row in rows for reason in re.findall(r"`(\w+)`", row)]
    fields = [*PrefixAnswer.__slots__, *(kind for kind in KINDS)]
    assert sorted(reasons) == sorted([*get_args(BreakReason), *fields])


def test_every_reason_is_documented() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "shared/turnlog/windows").glob("*.py")]
    reasons = {match for text in sources for match in re.findall(r'reason="(\w+)"', text)}
    reasons |= {match for text in sources for match in re.findall(r'\b(?:out|digest)\(\w+, "(\w+)"', text)}
    text = section(page("docs/reference/windows.md"), "## Manifest")
    assert reasons and {reason for reason in reasons if f"`{reason}`" not in text} == set()


def test_every_law_names_a_test_that_is_there() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "properties").glob("test_*.py"))
    named = re.findall(r"`(test_W\w+)`", section(page("docs/reference/windows.md"), "## Laws"))
    assert {re.match(r"test_(W\d)", name)[1] for name in named} == set(re.findall(r"def test_(W\d)_(?!to_)", tests))  # type: ignore[index]
    assert [name for name in named if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented(name: str) -> None:
    assert f"| `{PREFIX}{name.upper()}` |" in page("docs/reference/configuration.md")


@pytest.mark.parametrize("format", sorted(CODECS))
def test_every_format_is_documented(format: str) -> None:
    assert f"`{format}`" in page("docs/explanation/concepts.md") and f"`{format}`" in page("docs/reference/api.md")


def test_every_contract_suite_is_documented() -> None:
    contracts = importlib.import_module("turnlog.testing.contracts")
    for name in (name for name in contracts.__all__ if name.endswith("Contract")):
        assert f"`{name}`" in page("docs/how-to/engines.md")


def test_every_package_of_the_house_is_documented() -> None:
    turnlog = importlib.import_module("turnlog")
    packages = {module.name for module in pkgutil.iter_modules(turnlog.__path__) if module.ispkg}
    text = page("CONTRIBUTING.md")
    assert {name for name in packages if not re.search(rf"`(shared/turnlog/)?{name}/`", text)} == set()


def test_the_recipes_name_what_is_there() -> None:
    recipes = section(page("CONTRIBUTING.md"), "## Recipes")
    assert all(f"**{kind}" in recipes for kind in RECIPES)
    package = ROOT / "shared" / "turnlog"
    files = {name for name in re.findall(r"`([\w./-]+)`", recipes) if "/" in name or name.endswith((".py", ".yaml"))}
    assert {name for name in files if not ((package / name).exists() or (ROOT / name).exists())} == set()
    for names, file in re.findall(r"((?:`\w+`(?:, | and )?)+) (?:of|in) `([\w/]+\.py)`", recipes):
        text = (package / file if (package / file).exists() else ROOT / file).read_text(encoding="utf-8")
        assert [name for name in re.findall(r"`(\w+)`", names) if not re.search(rf"\b{name}\b", text)] == [], file


def test_the_examples_of_lint_are_what_it_says() -> None:
    """In the page ``...`` stands for lines that are left out."""
    cli, testing = importlib.import_module("turnlog.cli.app"), importlib.import_module("typer.testing")
    (shown,) = blocks(section(page("docs/reference/cli.md"), "## turnlog lint"), "text")
    runs = re.split(r"^\$ turnlog (lint .+)\n", shown, flags=re.M)[1:]
    assert len(runs) == 4
    for command, said in zip(runs[::2], runs[1::2], strict=True):
        arguments = [str(ROOT / word) if word.startswith("examples/") else word for word in command.split()]
        result = testing.CliRunner(env={"COLUMNS": "400"}).invoke(cli.app, arguments).output
        assert re.fullmatch(re.escape(said).replace(re.escape("...\n"), "(.*\n)+"), result), command


# ------------------------------------------------------------ links lead somewhere


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.S)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_no_blank_line_cuts_a_table(path: Path) -> None:
    blocks = re.findall(r"(?:^|\n)\n(\|.*)\n(.*)", without_code(path.read_text(encoding="utf-8")))
    assert [first for first, second in blocks if not second.startswith("|--") and not second.startswith("|:")] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_relative_links_resolve(path: Path) -> None:
    broken = list[str]()
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        result = (path.parent / file).resolve() if file else path
        if not result.exists():
            broken.append(target)
        elif fragment and result.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", without_code(result.read_text(encoding="utf-8")), re.M)
            if fragment not in map(anchor, headings):
                broken.append(target)
    assert broken == []


@cache
def linked_pages() -> set[Path]:
    """Return the pages that a reader reaches from the README by following links."""
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)", without_code(page.read_text(encoding="utf-8")))
        waiting += [(page.parent / target).resolve() for target in targets if not re.match(r"[a-z]+:", target)]
    return seen


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent != ROOT / "examples"], ids=name_of)
def test_every_page_can_be_found(path: Path) -> None:
    assert path in linked_pages()


FORBIDDEN = re.compile(
    r"(?<![\w.$/{}])/(?:work|root|tmp|opt|mnt|usr|var|etc|workspace)/|(?:pypi|npmjs|crates)\.|files\.pythonhosted|\bartifactory\b",
    re.I,
)


@pytest.mark.parametrize("path", WRITTEN, ids=name_of)
def test_no_page_names_a_place_of_the_machine_it_was_written_on(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert FORBIDDEN.findall(text) == []
    assert str(Path.home()) == "/" or str(Path.home()) not in text
    assert str(ROOT) not in text


# ------------------------------------------------------------ examples run


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def test_python_examples_run(tmp_path: Path) -> None:
    """Those of a page one after the other in one process, as a reader would type them."""
    files = list[Path]()
    for number, name in enumerate(RUNNABLE):
        code = blocks(page(name), "python")
        assert code, name
        files.append(tmp_path / str(number) / "example.py")
        files[-1].parent.mkdir()
        files[-1].write_text("\n\n".join(code), encoding="utf-8")
    assert dict(zip(RUNNABLE, run_alone(files), strict=True)) == dict.fromkeys(RUNNABLE, (0, ""))


def test_python_examples_of_a_section_run_alone(tmp_path: Path) -> None:
    sections = [part for name in RUNNABLE_SECTIONS for part in re.split(r"^(?=## )", page(name), flags=re.M)]
    examples = ["\n\n".join(code) for part in sections if (code := blocks(part, "python"))]
    files = [tmp_path / str(number) / "example.py" for number in range(len(examples))]
    for file, example in zip(files, examples, strict=True):
        file.parent.mkdir()
        file.write_text(example, encoding="utf-8")
    results = zip(examples, run_alone(files), strict=True)
    assert [result for result in results if result[1] != (0, "")] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_json_of_policies_is_json(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8"), "json"):
        if "..." not in block:
            json.loads(block)


def test_the_policies_body_in_the_documentation_is_one() -> None:
    body = json.loads(blocks(section(page("docs/reference/windows.md"), "### Steps"), "json")[0])
    assert build_window([{"role": "user", "content": "hi"}], policy=body).tokens > 0


# ------------------------------------------------------------ the API answers as its page says

EXAMPLE = re.compile(
    r"^```http\n(?P<method>[A-Z]+) (?P<target>\S+)\n(?P<headers>(?:\S+: [^\n]*\n)*)(?:\n(?P<body>.*?))?^```\n\n"
    r"(?P<status>\d{3})\n\n```json\n(?P<answer>.*?)^```",
    re.S | re.M,
)
TIME = re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+Z")
MADE_ID = re.compile(r"^s[a-z2-7]{31}$")
TOLD = [
    ("### Create a session", 0),
    ("### Append messages", 0),
    ("### Build a context", 1),
    ("### Append messages", 1),
    ("### Append messages", 2),
    ("### Get a session", 0),
    ("### Read messages", 0),
    ("### Read loops", 0),
    ("### Build a context", 0),
    ("### Build a window", 0),
    ("### Lint messages", 0),
    ("### Recall a call", 0),
    ("### Recall a call", 1),
    ("### Search a session", 0),
    ("### Get an agent", 0),
    ("### Replace the state", 0),
    ("### Change the state", 0),
    ("### Change the state", 1),
    ("### Get the state", 0),
    ("### Decide a pending action", 0),
    ("### Decide a pending action", 1),
    ("### Read the history", 0),
    ("### Record an entry", 0),
    ("### Change a session", 0),
    ("### End a session", 0),
    ("### Reset a session", 0),
]
"""The examples of the page that tell of one session, in the order in which it happens."""


def example_service() -> Callable[[re.Match[str]], tuple[int, object]]:
    """A service in memory, asked as `http` blocks ask."""
    engine = Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None)
    clock = FixedClock(1_795_248_000_000)  # the day of the page's examples
    app = Application(engine, Settings(), clock=clock, ids=SequentialIds())
    handler = make_handler(ROUTES, app)

    def ask(example: re.Match[str]) -> tuple[int, object]:
        path, _, query = example["target"].partition("?")
        kind = re.search(r"^Content-Type: (\S+)$", example["headers"], re.M)
        headers = {"content-type": kind[1]} if kind else {}
        made = event(example["method"], path, raw=example["body"], query=dict(parse_qsl(query)), headers=headers)
        answer = handler(made, None)
        return answer["statusCode"], json.loads(answer["body"])

    return ask


def told(text: str) -> object:
    """An answer as the page shows it: ``...`` stands for what is left out."""
    return json.loads(
        re.sub(r"(?<=[\[{])\.\.\.|(?<=, )\.\.\.(?=\])", '"..."', re.sub(r"\.\.\.(?=\})", '"...": 0', text))
    )


def unlike(shown: object, found: object, where: str = "") -> list[str]:
    """Where an answer is not what is shown. Times, scores, ids of requests and commits, and made ids are not compared."""
    if where.endswith(("/request_id", "/commit", "/user", "/score")):
        return []
    if isinstance(shown, str) and isinstance(found, str):
        same = [MADE_ID.sub("ID", TIME.sub("T", text)) for text in (shown, found)]
        return [] if same[0] == same[1] else [f"{where}: {found!r}"]
    if isinstance(shown, dict) and isinstance(found, dict):
        missing = [] if "..." in shown else [f"{where}/{name}: {found[name]!r}" for name in found.keys() - shown.keys()]
        return missing + [
            item
            for name in shown.keys() - {"..."}
            for item in (
                unlike(shown[name], found[name], f"{where}/{name}") if name in found else [f"{where}/{name}: not there"]
            )
        ]
    if isinstance(shown, list) and isinstance(found, list) and shown != ["..."]:
        if len(shown) != len(found):
            return [f"{where}: {len(found)} items: {json.dumps(found)}"]
        return [
            item for at, pair in enumerate(zip(shown, found, strict=True)) for item in unlike(*pair, f"{where}/{at}")
        ]
    return [] if shown in (found, ["..."]) else [f"{where}: {found!r}"]


def test_the_examples_of_the_api_are_answered_so() -> None:
    ask, text = example_service(), page("docs/reference/api.md")
    wrong = dict[str, list[str]]()
    for heading, at in TOLD:
        example = list(EXAMPLE.finditer(section(text, heading)))[at]
        status, answer = ask(example)
        different = unlike(told(example["answer"]), answer)
        if different or str(status) != example["status"]:
            wrong[f"{heading} {at}: {status}"] = different
        if (heading, at) == ("### Build a context", 0):
            assert isinstance(answer, dict)
            manifest = blocks(section(page("docs/reference/windows.md"), "## Manifest"), "json")[0]
            wrong |= {"manifest": result} if (result := unlike(told(manifest), answer["manifest"])) else {}
    assert wrong == {}


def test_what_a_model_is_told_of_a_miss_is_shown_as_it_is() -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        call = {"id": "call_1", "type": "function", "function": {"name": "get_order", "arguments": "{}"}}
        session.append(
            {"role": "user", "content": "Where?"}, {"role": "assistant", "content": None, "tool_calls": [call]}
        )
        session.append(*({"role": "user", "content": "?"} for _ in range(4)))
        said = session.execute_tool("recall_tool_call", {"ref": "99.0"}).text
    assert f"\n{said}\n" in section(page("docs/reference/windows.md"), "## Recall")


# ------------------------------------------------------------ figures are measured again

MEASURED: list[tuple[str, int | None]] = [
    ("full", None),
    ("full", 10_000),
    ("default", None),
    ("default", 10_000),
    ("default", 6_000),
    ("run_loops", None),
    ("run_loops", 4_000),
    ("classic", None),
    ("turns", None),
    ("turns(2)", None),
    ("tokens", None),
    ("buffer", None),
    ("messages(10)", None),
]


def sample() -> dict[str, list[dict[str, object]]]:
    content: dict[str, list[dict[str, object]]] = json.loads(page("examples/conversations/support-agent.json"))
    return content


@pytest.mark.parametrize(("policy", "budget"), MEASURED)
def test_a_list_of_messages_gives_the_figures_that_a_session_gives(policy: str, budget: int | None) -> None:
    """The picture in policies.md is made of a session."""
    window = build_window(sample()["messages"], tools=sample()["tools"], policy=policy, budget=budget)
    levels = Counter(part.level for part in window.manifest.parts if part.kind == "loop")
    name = policy + (f" at {budget:,}" if budget else "")
    (row,) = re.findall(rf"^{re.escape(name)}  +(.*)$", page("docs/reference/policies.md").split("<!-- end")[0], re.M)
    assert f" {window.tokens:,} " in row
    cells = row.split()[:12]
    assert (cells.count("██"), cells.count("▒▒")) == (levels["whole"] - cells.count("▓▓"), levels["digest"])


def test_the_picture_of_windows_has_the_figures_of_the_table() -> None:
    shown = re.findall(r'<text class="c"|<text class="t c"[^>]*>([^<]+)</text>', page("docs/images/windows.svg"))
    drawn = page("docs/images/windows.svg")
    for name in filter(None, shown):
        policy, _, budget = name.partition(" at ")
        window = build_window(
            sample()["messages"],
            tools=sample()["tools"],
            policy=policy,
            budget=int(budget.replace(",", "")) if budget else None,
        )
        assert f">{window.tokens:,}</text>" in drawn, name


def test_the_least_budget_is_measured() -> None:
    with pytest.raises(BudgetTooSmallError) as caught:
        build_window(sample()["messages"], tools=sample()["tools"], budget=2_000)
    assert f"need {int(caught.value.details['needed']):,}." in page("docs/reference/windows.md")


def test_the_samples_are_described_with_their_size() -> None:
    for path in sorted((ROOT / "examples" / "conversations").iterdir()):
        text = path.read_text(encoding="utf-8")
        result = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
        messages = sum(len(item["messages"]) for item in result)
        row = f"| [{path.name}](conversations/{path.name}) | {len(result)} | {messages} |"
        assert row in page("examples/README.md")


def test_every_decision_is_in_the_list_of_decisions() -> None:
    listed = re.findall(r"^\| \[\d{4}\]\((\S+)\) \| .+ \|$", page("docs/contributing/adr/README.md"), re.M)
    assert listed == sorted(path.name for path in (ROOT / "docs" / "contributing" / "adr").glob("0*.md"))


def test_a_decision_is_read_in_two_minutes() -> None:
    decisions = (ROOT / "docs" / "contributing" / "adr").glob("0*.md")
    lengths = {path.name: words(path) for path in decisions}
    assert {name: length for name, length in lengths.items() if length > 450} == {}


def test_operations_lists_every_reason_to_refuse_a_summary() -> None:
    text = section(page("docs/reference/operations.md"), "## Summaries")
    assert [reason for reason in get_args(Reason) if f"`{reason}`" not in text] == []


def test_operations_lists_every_metric_of_opentelemetry() -> None:
    source = (ROOT / "shared/turnlog/telemetry.py").read_text(encoding="utf-8")
    names = {*re.findall(r'"([\w.]+\.duration)"', source), *re.findall(r'meter, "([\w.]+)"', source)}
    text = section(page("docs/reference/operations.md"), "### OpenTelemetry")
    assert len(names) == 7 and {name for name in names if f"`{name}`" not in text} == set()
