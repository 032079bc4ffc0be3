"""Bodies that are wrong, or large."""

START, END = b'{"input":"a","user":"', b'"}'
BAD = (
    b"",
    b"{",
    b"[1]",
    b'{"input":1}',
    b'{"input":["a",1]}',
    b'{"input":"\xff"}',
    b'{"input":"a","input":"b"}',
    b'{"input":' + b"[" * 5000,
    b'{"input":[4294967296]}',
)


def of_size(size: int) -> bytes:
    """A good body of so many bytes, of which one field takes everything."""
    return START + b"b" * (size - len(START) - len(END)) + END
