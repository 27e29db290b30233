"""Server-sent events out of bytes that may be cut anywhere."""


class LineTooLong(Exception):
    """One event is larger than what is allowed; the stream cannot be trusted."""


class EventSplitter:
    """Collects bytes and gives back the data of each complete event.

    Lines end in LF or CR LF; comments and fields other than ``data`` are skipped. Work grows with
    the bytes fed, however small the pieces are.
    """

    __slots__ = ("_data", "_data_bytes", "_held", "_held_bytes", "_limit", "_started")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._started = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that ends within the piece.

        Raises LineTooLong once one event outgrows the limit.
        """
        if b"\n" not in piece:
            self._hold(piece)
            return []
        if self._held:
            piece = b"".join((*self._held, piece))
            self._held.clear()
            self._held_bytes = 0
        if not self._started:
            self._started = True
            piece = piece.removeprefix(b"\xef\xbb\xbf")
        events: list[bytes] = []
        if not self._data and b"\r" not in piece:
            *blocks, piece = piece.split(b"\n\n")
            for block in blocks:
                # Almost every event is one line of data: taking it whole costs half of looking at lines.
                if block.startswith(b"data: ") and b"\n" not in block and len(block) <= self._limit:
                    events.append(block[6:])
                else:
                    events += self._events([*block.split(b"\n"), b""])
        lines = piece.split(b"\n")
        rest = lines.pop()
        if rest:
            self._hold(rest)
        return events + self._events(lines) if lines else events

    def end(self) -> list[bytes]:
        """The last event, for the servers that end a stream without a blank line."""
        return self.feed(b"\n\n")

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self._held_bytes > self._limit:
            raise LineTooLong
        self._held.append(piece)

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line)
            elif (not line or line == b"\r") and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
        return events

    def _take(self, line: bytes) -> None:
        data = line[6:] if line[5:6] == b" " else line[5:]
        if data.endswith(b"\r"):
            data = data[:-1]
        self._data_bytes += len(data)
        if self._data_bytes > self._limit:
            raise LineTooLong
        self._data.append(data)
