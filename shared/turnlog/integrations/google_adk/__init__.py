"""Sessions of Google's Agent Development Kit (2.13) over the log: https://google.github.io/adk-docs/sessions/session/.

    from turnlog.integrations.google_adk import TurnlogSessionService, TurnlogWindowPlugin

    service = TurnlogSessionService(log)
    app = App(name="desk", root_agent=agent, plugins=[TurnlogWindowPlugin(service, budget=30_000)])
    runner = Runner(app=app, session_service=service)

Each event is a message of the log. With the plugin the model is sent the session's window instead of all events.
"""

from turnlog.integrations.google_adk.sessions import TurnlogSessionService, TurnlogWindowPlugin

__all__ = ["TurnlogSessionService", "TurnlogWindowPlugin"]
