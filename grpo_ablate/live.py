"""The report's page served on this machine, so that it follows runs as they write."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from grpo_ablate.analysis import html

HOST = "127.0.0.1"
"""Nobody else's machine reaches it."""


def server(output_dir: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of `/` and `/data.json`, both read from the runs' files when asked for.

    Args:
        output_dir: of the study.
        port: 0 for a free one.

    Raises:
        OSError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # another site's page must not read it through a name that leads here
            if self.headers.get("host", "").split(":")[0] not in (HOST, "localhost"):
                self.send_error(403)
            elif self.path == "/":
                self._send("text/html", html.page(html.gather(output_dir), live=True))
            elif self.path == "/data.json":
                text = json.dumps({**html.gather(output_dir), "live": True}, allow_nan=False)
                self._send("application/json", text)
            else:
                self.send_error(404)

        def _send(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """A line for each look would bury everything else."""

    return ThreadingHTTPServer((HOST, port), Handler)
