"""Server-sent events out of the bytes of a stream (WHATWG HTML, section 9.2), within bounds."""

from __future__ import annotations

from collections.abc import Iterator

from dynosim.verification.load.bad_answer import BadAnswer

LONGEST_LINE_BYTES = 1 << 20


class EventStream:
    """Takes bytes as they come and gives the data of events as they are complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the data of every event that ends in ``chunk``; BadAnswer for a line too long."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES:
            raise BadAnswer(f"a line of more than {LONGEST_LINE_BYTES} bytes")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data.clear()
