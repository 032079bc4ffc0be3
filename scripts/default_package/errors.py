"""The one error these scripts show to a person."""


class PackageError(Exception):
    """Something the caller can act on; its text is one sentence, shown without a traceback."""
