"""A TCP proxy between a client and a server: it counts their turns, and can lose what either says.

A turn is a request and its answer: bytes from the client after the server has spoken (or at the beginning), however
many packets they take. Each direction of each connection is one thread.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread

CHUNK = 65536


class Proxy:
    """Forwards a port of the loopback to another one, until it is closed."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.turns = 0
        self.connections = 0
        self._lock = Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._swallowing: Callable[[bytes], bool] | None = None
        self._bytes_left: int | None = None
        Thread(target=self._accept, daemon=True).start()

    def swallow_reply(self, to: Callable[[bytes], bool] = bool) -> None:
        """Forward the next request for which `to` is true, and hang up on the client when the server has answered."""
        self._swallowing = to

    def drop_after(self, count: int) -> None:
        """Forward so many more bytes of clients, and then hang up on both sides."""
        self._bytes_left = count

    def drop_all(self) -> None:
        """Hang up on everybody now."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _hang_up(*pair)

    def close(self) -> None:
        """Hang up on everybody, and take no more."""
        _hang_up(self._listener)
        self.drop_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            _hang_up(client)
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self.connections += 1
            self._pairs.append((client, server))
        link = _Link(self, client, server)
        Thread(target=link.forward_requests, daemon=True).start()
        Thread(target=link.forward_replies, daemon=True).start()

    def passes(self, request: bytes) -> bytes | None:
        """The part of a request to forward; None if the line is cut after it."""
        if self._bytes_left is None:
            return request
        passed = request[: self._bytes_left]
        self._bytes_left -= len(passed)
        return passed

    def is_cut(self) -> bool:
        """True, once, when no more bytes may pass."""
        if self._bytes_left == 0:
            self._bytes_left = None
            return True
        return False

    def swallows(self, request: bytes) -> bool:
        """True, once, for the request whose reply is to be lost."""
        if self._swallowing is not None and self._swallowing(request):
            self._swallowing = None
            return True
        return False


class _Link:
    """One client, one server, and whose turn it is."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._answered = True
        self._is_doomed = False

    def forward_requests(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(CHUNK):
                if self._answered:
                    self._answered = False
                    self._proxy.turns += 1
                self._is_doomed = self._is_doomed or self._proxy.swallows(data)
                self._server.sendall(self._proxy.passes(data) or b"")
                if self._proxy.is_cut():
                    break
        _hang_up(self._client, self._server)

    def forward_replies(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(CHUNK):
                if self._is_doomed:
                    break
                self._answered = True
                self._client.sendall(data)
        _hang_up(self._client, self._server)


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
