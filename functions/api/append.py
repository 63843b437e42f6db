"""Lambda entry point: the routes of `append`."""

from turnlog.http.lambda_api import make_handler
from turnlog.http.route_table import routes_of

handler = make_handler(routes_of("append"))
