"""Lambda entry point: the routes of `memory`."""

from turnlog.entrypoints.http import make_handler
from turnlog.entrypoints.routes import routes_of

handler = make_handler(routes_of("memory"))
