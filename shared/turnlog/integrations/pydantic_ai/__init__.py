"""Conversations of Pydantic AI (2.68) over the log: https://ai.pydantic.dev/conversations/.

    from turnlog.integrations.pydantic_ai import TurnlogConversationStore, TurnlogWindow

    store = TurnlogConversationStore(log)
    agent = Agent(model, tools=tools, capabilities=[TurnlogWindow(store, budget=30_000)])
    conversation = await store.load("support-42") or Conversation(conversation_id="support-42")
    await store.save(await agent.run("Hello", conversation=conversation))

The messages of a conversation are messages of a session; a branch rewinds it and a fork forks it. With `TurnlogWindow` messages are
in the log before the model is called, and the model is sent the session's window.
"""

from turnlog.integrations.pydantic_ai.store import TurnlogConversationStore, TurnlogWindow

__all__ = ["TurnlogConversationStore", "TurnlogWindow"]
