"""A Python example for each call of the route table. `tests/http/test_reference.py` runs every one of them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

SERVICE = "http://127.0.0.1:8787"
_OF_SESSION = {
    "get_session": """
        info = session.info()
        print(info.status, info.head, info.messages, info.tokens)
    """,
    "update_session": """
        print(session.update(title="Order A17", policy="run_loops").title)
    """,
    "end_session": """
        print(session.end().status)
    """,
    "reset_session": """
        fresh = session.reset()  # always the same one, however often it is asked for
        print(fresh.id, fresh.info().reset_of)
    """,
    "append_messages": """
        appended = session.append({"role": "user", "content": "Where is A18?"}, key="turn-17")
        print(appended.first, appended.last, appended.warnings)
    """,
    "read_messages": """
        for message in session.messages():  # page by page
            print(message.position, message.status, message.body)
    """,
    "read_loops": """
        for loop in session.loops():  # newest first
            print(loop.loop, loop.status, [call.ref for call in loop.tool_calls])
    """,
    "build_context": """
        window = session.context(format="anthropic", budget=20_000)
        print(window.tokens, window.system, window.messages, window.tools)
    """,
    "recall": """
        found = session.recall("3.0")  # the first call of the message at position 3
        print(found.found, found.name, found.arguments, found.content)
    """,
    "search_session": """
        for result in session.search("when is the order due").results:
            print(result.position, result.role, result.snippet)
    """,
    "get_state": """
        print(session.state().state, session.state(at=1).state)
    """,
    "put_state": """
        print(session.put_state({"lang": "en", "cart": []}, action="begin").version)
    """,
    "patch_state": """
        session.patch_state({"lang": "en"})  # a Merge Patch
        found = session.patch_state([{"op": "add", "path": "/cart", "value": ["A17"]}])  # a JSON Patch
        print(found.state, found.version)
    """,
    "get_agent": """
        session.patch_agent({"agent_id": "main", "iteration": 1, "max_iterations": 20})
        print(session.agent("main").state)
    """,
    "patch_agent": """
        print(session.patch_agent({"agent_id": "main", "scratchpad": "ask for the address"}).state)
    """,
    "decide_pending": """
        session.patch_agent({"agent_id": "main", "pending_action": {"name": "refund", "call_id": "c9"}})
        print(session.decide_pending("reject", reason="over the limit").refusal)
    """,
    "read_history": """
        for entry in session.history_page(limit=10).entries:
            print(entry.history_id, entry.action, entry.created_at)
    """,
    "record_history": """
        print(session.record("handed_over", metadata={"to": "billing"}).history_id)
    """,
    "diff_session": """
        found = session.diff(2)  # since position 2
        print([message.position for message in found.messages], found.state)
    """,
    "rewind_session": """
        print(session.rewind(2).messages)  # the log keeps what came after, so a rewind can be rewound
    """,
    "compress_session": """
        done = session.compress(keep_loops=1)
        print(done)
    """,
    "get_summary": """
        session.compress(keep_loops=1)
        print(session.summary())  # None while there is none
    """,
    "discard_summary": """
        session.compress(keep_loops=1)
        print(session.discard_summary().status)
    """,
    "create_snapshot": """
        snapshot = session.create_snapshot("before-refund")
        print(snapshot.snapshot_id, snapshot.position)
    """,
    "list_snapshots": """
        session.create_snapshot("before-refund")
        print([snapshot.name for snapshot in session.snapshots()])
    """,
    "get_snapshot": """
        session.create_snapshot("before-refund")
        print(session.snapshot("before-refund").position)
    """,
    "delete_snapshot": """
        session.create_snapshot("before-refund")
        print(session.delete_snapshot("before-refund"))
    """,
    "restore_snapshot": """
        session.create_snapshot("before-refund")
        print(session.restore_snapshot("before-refund"))  # as a session of its own
    """,
    "download": """
        print(session.export("support-42.zip").size_bytes)  # asks for the export, then for its signed address
    """,
    "put_documents": """
        written = session.documents.put("draft", b"Dear Ms Lovelace")  # bytes by key, beside the log
        print(written.revision)
    """,
    "get_documents": """
        session.documents.put("draft", b"Dear Ms Lovelace")
        print(session.documents.get("draft"), list(session.documents.list("dra")))
    """,
    "erase_session": """
        print(session.erase().status)  # nobody finds it from here on
    """,
    "redact_message": """
        print(session.redact(2).status)  # nobody reads what it said from here on
    """,
    "export_session": """
        print(session.export("support-42.zip").sha256)
    """,
    "import_session": """
        session.export("support-42.zip")
        (imported,) = log.sessions.import_("support-42.zip", session_id="support-42-again")
        print(imported.status, imported.position)
    """,
}
_OF_OWNER = {
    "create_session": """
        session = log.sessions.get_or_create("support-43", system="You are brief.", policy="default")
        print(session.info().created_at)
    """,
    "list_sessions": """
        for info in log.sessions.list(status="active"):  # newest activity first, page by page
            print(info.session_id, info.updated_at)
    """,
    "build_window": """
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
        print(log.build_window(messages, policy="turns(10)", format="anthropic").tokens)  # nothing is stored
    """,
    "lint_messages": """
        messages = [{"role": "tool", "tool_call_id": "c1", "content": "of no call"}]
        for problem in log.lint(messages, format="openai_chat").problems:
            print(problem.rule, problem.pointer, problem.fix)
    """,
    "search_sessions": """
        for result in log.search("order A17").results:
            print(result.session_id, result.snippet)
    """,
    "get_job": """
        job = log.sessions.get("support-42").compress(mode="async")
        print(log.job(job.job_id).status)
    """,
    "list_jobs": """
        log.sessions.get("support-42").compress(mode="async")
        for job in log.jobs():  # newest first, page by page
            print(job.job_id, job.kind, job.status)
    """,
    "list_memories": """
        for memory in log.memory():
            print(memory.memory_id, memory.text)
    """,
    "forget_memory": """
        for memory in log.memory():
            print(log.forget(memory.memory_id))
    """,
    "export_everything": """
        print(log.export("everything.zip").sha256)
    """,
    "erase_user": """
        print(log.erase_me().status)  # no session can be created until the job is done
    """,
    "health": """
        print(log.health().version, log.health().engine)
    """,
}
_OTHERS = {
    "openapi": f"""
        import json
        from urllib.request import urlopen

        with urlopen("{SERVICE}/v1/openapi.json") as answer:
            print(json.load(answer)["info"]["version"])
    """,
}
_BEGIN = f'from turnlog import Turnlog\n\nwith Turnlog.open("{SERVICE}") as log:\n'
_SESSION = '    session = log.sessions.get("support-42")\n'


def samples() -> Mapping[str, str]:
    """The examples by the names of the routes; each is a whole program."""
    found = {name: _BEGIN + _SESSION + _indented(text) for name, text in _OF_SESSION.items()}
    found |= {name: _BEGIN + _indented(text) for name, text in _OF_OWNER.items()}
    return found | {name: textwrap.dedent(text).lstrip("\n") for name, text in _OTHERS.items()}


def _indented(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).strip() + "\n", "    ")
