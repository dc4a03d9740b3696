"""The report's page served on this machine, so that it follows runs as they write."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from grpo_ablate import liveness, study
from grpo_ablate.analysis import contents, html, report
from grpo_ablate.analysis.load import read_study

HOST = "127.0.0.1"
"""Nobody else's machine reaches it."""


class Source:
    """What the page shows, gathered anew only when some run's files have changed."""

    def __init__(self, output_dir: Path) -> None:
        """Name the study's folder."""
        self._output_dir, self._lock = output_dir, threading.Lock()
        self._seen: list[Any] = []
        self._data: Mapping[str, Any] = {}

    def data(self) -> Mapping[str, Any]:
        """Return what `contents.gather` does, of now."""
        with self._lock:
            now = self._fingerprint()
            if now != self._seen:
                runs = read_study(self._output_dir)
                found = report.build(runs, study.read(self._output_dir))
                self._seen, self._data = now, contents.gather(self._output_dir, found, runs)
            return self._data

    def _fingerprint(self) -> list[Any]:
        return [
            (folder, liveness.status(folder)["state"], _times(folder))
            for folder in liveness.run_folders(self._output_dir)
        ]


def _times(folder: Path) -> list[tuple[int, int]]:
    """Return when each table of a run was written last, and how long it was then."""
    paths = (path for end in ("csv", "jsonl") for path in sorted(folder.glob(f"*.{end}")))
    return [(stat.st_mtime_ns, stat.st_size) for stat in (path.stat() for path in paths)]


def server(output_dir: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of `/` and `/data.json`, both from the runs' files as they are when asked.

    Args:
        output_dir: of the study.
        port: 0 for a free one.

    Raises:
        OSError: the port is taken.
    """
    handler = type("Handler", (_Handler,), {"source": Source(output_dir)})
    return ThreadingHTTPServer((HOST, port), handler)


class _Handler(BaseHTTPRequestHandler):
    source: Source

    def do_GET(self) -> None:
        # another site's page must not read it through a name that leads here
        if self.headers.get("host", "").split(":")[0] not in (HOST, "localhost"):
            self.send_error(403)
        elif self.path == "/":
            self._send("text/html", html.page(self.source.data(), live=True))
        elif self.path == "/data.json":
            data = {**self.source.data(), "live": True}
            self._send("application/json", json.dumps(data, allow_nan=False))
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
