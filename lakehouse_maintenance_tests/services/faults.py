"""An HTTP reverse proxy that can fail on purpose: refused, cut and lost answers in front of a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for. `number` counts from 1 over all requests of the proxy."""

    number: int
    method: str
    target: str
    """Path and query, undecoded."""
    body: bytes = field(default=b"", repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """Given by the proxy in place of the server's. `after`: the server does it first, and its own answer is dropped."""

    status: int
    body: bytes = b""
    after: bool = False


@dataclass(frozen=True, slots=True)
class Lose:
    """The server does it, and the client never hears: the connection closes without an answer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection closes: before the server hears of it, or `after` so many bytes of its answer's body."""

    after: int | None = None


Rule = Callable[[Request], Answer | Lose | Cut | None]
"""None: let the request pass."""


@dataclass
class FaultProxy:
    """`endpoint` answers like the server behind it, except where `rule` says otherwise."""

    endpoint: str
    rule: Rule = field(default=lambda request: None)
    seen: list[Request] = field(default_factory=list)


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """A proxy in front of `upstream` (http://host:port) on a free port of this machine."""
    target = urlsplit(upstream).netloc
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        proxy: ClassVar[FaultProxy]

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                request = Request(len(self.proxy.seen) + 1, self.command, self.path, body, dict(self.headers))
                self.proxy.seen.append(request)
            fault = self.proxy.rule(request)
            if isinstance(fault, Answer) and not fault.after:
                self._answer(fault.status, [], fault.body)
                return
            if fault == Cut():
                self.close_connection = True
                return
            # Headers go on as they came, Host included: signatures cover it.
            connection = HTTPConnection(target, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    connection.putheader(name, value)
            if body or self.headers.get("Content-Length"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            response = connection.getresponse()
            content = response.read()
            if isinstance(fault, Lose):
                self.close_connection = True
            elif isinstance(fault, Answer):
                self._answer(fault.status, [], fault.body)
            elif isinstance(fault, Cut):
                self._answer(response.status, response.getheaders(), content, only=fault.after)
                self.close_connection = True
            else:
                self._answer(response.status, response.getheaders(), content)
            connection.close()

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, only: int | None = None) -> None:
            length = str(len(body))
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[:only])

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  # http.server's names

        def log_message(self, *args: Any) -> None:
            """Silent: tests read `seen`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.proxy = FaultProxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield Handler.proxy
    finally:
        server.shutdown()
        server.server_close()
