"""Lambda entry point: the routes of `build_context`."""

from turnlog.http.lambda_api import make_handler
from turnlog.http.route_table import routes_of

handler = make_handler(routes_of("build_context"))
