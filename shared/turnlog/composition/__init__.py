"""The use cases over an engine, wired. Only `turnlog.bootstrap` takes them from here.

What a use case needs is imported by the property that makes it: a Lambda loads what its resource takes.
"""
