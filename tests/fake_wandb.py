"""A loopback stand-in for the W&B server that the real SDK logs to and reads back from.

    with FakeWandb() as server:          # 127.0.0.1, a free port; loopback only
        os.environ |= server.env
        ...
        server.runs["me/project/id"]["history"]    # a dict a row

Leaving the block fails if the SDK asked for anything that is not here. `server.fault` injects:
"500" answers everything so, "silent" accepts and never answers (a black hole), "" is well.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "secret" + "0" * 34
"""As long as a real one; tests look for it where it must not be."""

_PAGE = {"endCursor": None, "hasNextPage": False}
_TIME = "2026-01-01T00:00:00Z"


class FakeWandb:
    """One server with one user, `me`."""

    def __init__(self) -> None:
        self.fault = ""
        self.fail_after: int | None = None
        """File-stream requests until the fault "silent" begins by itself."""
        self.runs: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.alerts: list[dict[str, Any]] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.bodies: list[bytes] = []
        self.unknown: list[str] = []
        self.lock = threading.RLock()
        self.closed = threading.Event()
        self.http = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": self}))
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.env = {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}

    def __enter__(self) -> FakeWandb:
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.closed.set()
        self.http.shutdown()
        self.http.server_close()
        assert kind is not None or not self.unknown, self.unknown

    def writes(self) -> str:
        """Everything that changes when something is sent."""
        kept = {key: (run["history"], run["summary"]) for key, run in self.runs.items()}
        return repr((kept, sorted(self.files.items()), self.alerts, self.views))

    def history(self, name: str) -> list[dict[str, Any]]:
        """Rows of the run with this display name."""
        (run,) = (r for r in self.runs.values() if r["vars"]["displayName"] == name)
        return run["history"]

    # what the SDK streams
    def stream(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        run = self.runs[key]
        for name, part in (body.get("files") or {}).items():
            lines, at = part.get("content", []), part.get("offset", 0)
            if name == "wandb-history.jsonl":  # offsets make a repeated request harmless
                run["history"][at : at + len(lines)] = [json.loads(line) for line in lines]
            elif name == "wandb-summary.json":
                run["summary"] = json.loads(lines[-1])
        if body.get("complete"):
            run["state"] = "failed" if body.get("exitcode") else "finished"
        return {"exitcode": None, "limits": {}}

    # what it asks
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        variables = body.get("variables") or {}
        operation = re.search(r"\b(?:query|mutation)\s+(\w+)", body["query"])
        name = operation[1] if operation else body["query"]
        handler = getattr(self, f"on_{name}", None)
        if handler is None:
            self.unknown.append(f"{name} {body['query'][:300]} {str(variables)[:300]}")
            return {"data": None, "errors": [{"message": f"the fake does not know {name}"}]}
        return {"data": handler(variables)}

    def _key(self, v: dict[str, Any]) -> str:
        where = v.get("project") or v.get("projectName") or v.get("model")
        run = v.get("name") or v.get("run") or v.get("runName")
        return f"{v.get('entity') or v.get('entityName') or 'me'}/{where}/{run}"

    def _node(self, key: str) -> dict[str, Any] | None:
        run = self.runs.get(key)
        if run is None:
            return None
        entity, project, name = key.split("/")
        v, config = run["vars"], run["vars"].get("config") or "{}"
        owner = {"id": "1", "internalId": "1", "name": project, "organization": None}
        return {
            "id": key,
            "name": name,
            "displayName": v.get("displayName"),
            "state": run["state"],
            "group": v.get("groupName"),
            "jobType": v.get("jobType"),
            "tags": v.get("tags") or [],
            "config": config,
            "wandbConfig": json.dumps(json.loads(config).get("_wandb", {}).get("value", {})),
            "summaryMetrics": json.dumps(run["summary"]),
            "systemMetrics": "{}",
            "historyLineCount": len(run["history"]),
            "eventsLineCount": 0,
            "logLineCount": 0,
            "historyTail": json.dumps([json.dumps(row) for row in run["history"][-1:]]),
            "eventsTail": "[]",
            "historyKeys": {"keys": {}, "sets": [], "lastStep": len(run["history"]) - 1},
            "projectId": "1",
            "project": owner | {"entity": {"id": "e", "name": entity}},
            "user": {"name": "me", "username": "me"},
            "createdAt": _TIME,
            "heartbeatAt": _TIME,
            "readOnly": False,
            **dict.fromkeys(("notes", "commit", "description", "sweepName", "sweep"), None),
            **dict.fromkeys(("agent", "branchPoint", "internalId", "stopped"), None),
        }

    def _edges(self, key: str, names: list[str]) -> dict[str, Any]:
        base = f"{self.url}/files/{key}"
        nodes = [
            {
                "id": name,
                "name": name,
                "displayName": name,
                **dict.fromkeys(("url", "directUrl", "uploadUrl"), f"{base}/{name}"),
                "uploadHeaders": [],
                "sizeBytes": len(self.files.get(f"/files/{key}/{name}", b"")),
                "updatedAt": _TIME,
                "mimetype": None,
                "md5": None,
            }
            for name in names
        ]
        edges = [{"node": node, "cursor": node["name"]} for node in nodes]
        return {"uploadHeaders": [], "edges": edges, "pageInfo": _PAGE}

    def on_Viewer(self, v):
        person = {
            "id": "1",
            "entity": "me",
            "username": "me",
            "name": "me",
            "email": "",
            "flags": "{}",
        }
        teams = {"edges": [{"node": {"id": "e", "name": "me"}}]}
        info = {"cliVersionInfo": {"max_cli_version": "99"}, "latestLocalVersionInfo": None}
        keys = {"admin": False, "deletedAt": None, "apiKeys": {"edges": []}}
        return {"viewer": person | keys | {"teams": teams}, "serverInfo": info | {"features": []}}

    on_GetViewer = on_GetDefaultEntity = on_Viewer

    def on_OrganizationCoreWeaveOrganizationID(self, v):
        return {"entity": {"organization": None}}

    def on_ServerFeaturesQuery(self, v):
        return {"serverInfo": {"features": []}}

    def on_UpsertBucket(self, v):
        key = self._key(v)
        new = key not in self.runs
        run = self.runs.setdefault(key, {"vars": {}, "history": [], "summary": {}})
        run["vars"] |= {name: value for name, value in v.items() if value is not None}
        run["state"] = "running"
        bucket = self._node(key)
        return {"upsertBucket": {"bucket": bucket, "inserted": new, "serverSettings": None}}

    def on_RunResumeStatus(self, v):
        _, project, _ = key = self._key(v).split("/")
        model = {"id": "1", "name": project, "entity": {"id": "e", "name": "me"}}
        return {"model": model | {"bucket": self._node("/".join(key))}}

    def on_RunStoppedStatus(self, v):
        return {"project": {"run": {"stopped": False}}}

    def on_CreateRunFiles(self, v):
        nodes = [edge["node"] for edge in self._edges(self._key(v), v["files"])["edges"]]
        return {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": nodes}}

    def on_RunUploadUrls(self, v):
        files = self._edges(self._key(v), v["files"])
        return {"model": {"bucket": {"id": "1", "files": files}}}

    def on_NotifyScriptableRunAlert(self, v):
        self.alerts.append(v)
        return {"notifyScriptableRunAlert": {"success": True}}

    def on_ArtifactType(self, v):
        return {"project": {"artifact": None}}

    def on_CreateArtifact(self, v):
        sequence = {"id": "1", "latestArtifact": {"id": "1", "versionIndex": 0}}
        made = {"id": "1", "state": "COMMITTED", "aliases": [], "artifactSequence": sequence}
        return {"createArtifact": {"artifact": made}}

    # reading back
    def on_Run(self, v):
        return {"project": {"run": self._node(self._key(v))}}

    on_LightweightRun = on_Run

    def on_RunFiles(self, v):
        start = f"/files/{self._key(v)}/"
        names = [path.removeprefix(start) for path in self.files if path.startswith(start)]
        wanted = v.get("fileNames")
        files = self._edges(self._key(v), [n for n in names if not wanted or n in wanted])
        run = {"fileCount": len(files["edges"]), "files": files}
        return {"project": {"internalId": "1", "run": run}}

    def on_RunHistoryKeys(self, v):
        return {"project": {"run": {"historyKeys": self._node(self._key(v))["historyKeys"]}}}

    def on_RunParquetHistory(self, v):
        live = self.runs[self._key(v)]["history"]
        return {"project": {"run": {"parquetHistory": {"parquetUrls": [], "liveData": live}}}}

    def on_HistoryPage(self, v):
        rows = self.runs[self._key(v)]["history"][v["minStep"] : v["maxStep"]]
        return {"project": {"run": {"history": [json.dumps(row) for row in rows]}}}

    # workspaces
    def on_ProjectInternalId(self, v):
        return {"project": {"internalId": "1", "id": "1"}}

    def on_UpsertView2(self, v):
        name = v.get("id") or f"view{len(self.views)}"
        self.views[name] = v | {"spec": json.loads(v["spec"])}
        view = {"id": name, "name": v["name"], "displayName": v["displayName"], "spec": v["spec"]}
        rest = {"type": v["type"], "description": None, "project": {"id": "1", "entityName": "me"}}
        return {"upsertView": {"view": view | rest, "inserted": True}}

    on_upsertView = on_UpsertView2


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, address: object) -> None:
        """The SDK drops connections when it leaves; that is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeWandb

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self._body()
        if self._faulty():
            return
        found = re.fullmatch(r"/files/([^/]+/[^/]+/[^/]+)/file_stream", self.path)
        with self.fake.lock:
            if self.path == "/graphql":
                self._send(200, self.fake.answer(json.loads(body)))
            elif found:
                self._send(200, self.fake.stream(found[1], json.loads(body)))
            elif self.path.startswith("/sdk/otel"):
                self._send(200, {})
            else:
                self.fake.unknown.append(f"POST {self.path}")
                self._send(404, {})

    def do_PUT(self) -> None:
        body = self._body()
        if not self._faulty():
            self.fake.files[self.path.split("?")[0]] = body
            self._send(200, {})

    def do_GET(self) -> None:
        if not self._faulty():
            found = self.fake.files.get(self.path.split("?")[0])
            self._send(404 if found is None else 200, found or b"")

    def _faulty(self) -> bool:
        fake = self.fake
        if fake.fail_after is not None and self.path.endswith("/file_stream"):
            fake.fail_after -= 1
            fake.fault = "silent" if fake.fail_after < 0 else fake.fault
        if fake.fault == "silent":
            fake.closed.wait(60)
            self.close_connection = True
        elif fake.fault == "500":
            self._send(500, {"error": "injected"})
        return bool(fake.fault)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.fake.bodies.append(body)
        return body

    def _send(self, code: int, answer: dict[str, Any] | bytes) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
