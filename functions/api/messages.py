"""Lambda entry point: the routes of `messages` and `search`."""

from turnlog.http.lambda_api import make_handler
from turnlog.routing import routes_of

handler = make_handler(routes_of("messages"))
