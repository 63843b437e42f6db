"""Lambda entry point: the schedule that finds sessions that have expired or are silent."""

from turnlog.http.lambda_workers import make_retention

handler = make_retention()
