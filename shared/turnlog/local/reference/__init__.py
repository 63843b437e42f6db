"""The reference of the HTTP API for people: a page of the OpenAPI document, with a Python example for each call."""
