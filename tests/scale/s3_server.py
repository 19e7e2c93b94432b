"""Enough of the S3 protocol, on this machine and in memory, to read, write and list objects with its clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Objects = dict[str, bytes]  # "bucket/key" -> content
DATE = "2026-01-01T00:00:00.000Z"


@contextmanager
def s3_server(objects: Objects) -> Iterator[str]:
    """The server's address; ``objects`` is what it holds, before and afterwards."""

    class Handler(_Handler):
        held, parts = objects, dict[str, dict[int, bytes]]()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    held: Objects
    parts: dict[str, dict[int, bytes]]  # of uploads that are under way
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        name, _ = self._asked()
        if name in self.held:
            self._answer(200, self.held[name])
        else:
            bucket = "/" not in name and any(known.startswith(f"{name}/") for known in self.held)
            self._answer(200 if bucket else 404)

    def do_GET(self) -> None:
        name, query = self._asked()
        if "/" not in name:
            self._answer(200, self._listing(name, query))
        elif name not in self.held:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif "Range" in self.headers:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            self._answer(206, self.held[name][int(first) : int(last) + 1])
        else:
            self._answer(200, self.held[name])

    def do_PUT(self) -> None:
        name, query = self._asked()
        content = self._content()
        if "uploadId" in query:
            self.parts.setdefault(name, {})[int(query["partNumber"])] = content
        else:
            self.held[name] = content
        self._answer(200)

    def do_POST(self) -> None:
        """Begin and end uploads in parts."""
        name, query = self._asked()
        self._content()
        if "uploads" in query:
            self._answer(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
            return
        self.held[name] = b"".join(part for _, part in sorted(self.parts.pop(name).items()))
        self._answer(200, b'<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>')

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).strip("/") + (
            "/" if parts.path.endswith("/") and parts.path.count("/") > 2 else ""
        ), query

    def _content(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _listing(self, bucket: str, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys = sorted(name.split("/", 1)[1] for name in self.held if name.startswith(f"{bucket}/{prefix}"))
        deeper = {k[: k.index(delimiter, len(prefix)) + 1] for k in keys if delimiter and delimiter in k[len(prefix) :]}
        here = [key for key in keys if not any(key.startswith(folder) for folder in deeper)]
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.held[f'{bucket}/{key}'])}</Size>"
            f"<LastModified>{DATE}</LastModified></Contents>"
            for key in here
        ]
        rows += [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(deeper)]
        rows = rows[: int(query.get("max-keys", 1000))]  # more are never asked for here
        about = f"<IsTruncated>false</IsTruncated><KeyCount>{len(rows)}</KeyCount>"
        return f"<ListBucketResult>{about}{''.join(rows)}</ListBucketResult>".encode()

    def _answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
