"""A listener without TLS that keeps what it is sent: what a server behind TLS must never be sent in the clear."""

import socket
from threading import Thread
from types import TracebackType
from typing import Self

from servers.ports import free_port


class PlainListener:
    """Accepts connections until it is left, reads once from each, and hangs up."""

    def __init__(self) -> None:
        self.port = free_port()
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._thread = Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                self.received.append(connection.recv(65536))
