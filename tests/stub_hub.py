"""A model hub on the loopback that serves folders and refuses in the ways the real one does.

Repositories: tiny/NAME serves a folder; gated/x, absent/x and private/x are refused; huge/x says it is very large.
Any request with the token "hf_bad" is refused.
"""

import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40
REFUSED = {
    "gated": (403, "GatedRepo", "Access to model gated/x is restricted."),
    "absent": (404, "RepoNotFound", "Repository not found"),
    "private": (401, "RepoNotFound", "Repository not found"),
}


class Hub(BaseHTTPRequestHandler):
    folders: dict[str, Path]
    seen: list[str]

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _send(self, code: int, data: bytes, body: bool, **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _refuse(self, code: int, kind: str, text: str, body: bool) -> None:
        headers = {"X_Error_Message": text} | ({"X_Error_Code": kind} if kind else {})
        self._send(code, b"", body, **headers)

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.seen.append(f"{self.command} {path}")
        if "hf_bad" in (self.headers.get("Authorization") or ""):
            return self._refuse(401, "", "Invalid credentials in Authorization header", body)
        parts = path.removeprefix("/api/models").strip("/").split("/")
        owner, name, rest = parts[0], parts[1] if len(parts) > 1 else "", parts[2:]
        if owner in REFUSED:
            return self._refuse(*REFUSED[owner], body)
        folder = self.folders.get(name)
        if folder is None:
            return self._refuse(*REFUSED["absent"], body)
        if "revision" in rest and rest[rest.index("revision") + 1] not in ("main", COMMIT):
            return self._refuse(404, "RevisionNotFound", "Invalid rev id", body)
        if path.startswith("/api/models"):
            files = sorted(p for p in folder.rglob("*") if p.is_file())
            scale = 10**9 if owner == "huge" else 1
            if "tree" in rest:
                listed: Any = [
                    {
                        "type": "file",
                        "path": str(p.relative_to(folder)),
                        "size": p.stat().st_size,
                        "oid": "0" * 40,
                    }
                    for p in files
                ]
            else:
                siblings = [
                    {"rfilename": str(p.relative_to(folder)), "size": p.stat().st_size * scale}
                    for p in files
                ]
                listed = {
                    "id": f"{owner}/{name}",
                    "modelId": f"{owner}/{name}",
                    "sha": COMMIT,
                    "siblings": siblings,
                }
            return self._send(
                200, json.dumps(listed).encode(), body, Content_Type="application/json"
            )
        file = folder.joinpath(*rest[2:])
        if not file.is_file():
            return self._refuse(404, "EntryNotFound", "Entry not found", body)
        data = file.read_bytes()
        etag = '"' + hashlib.sha1(data).hexdigest() + '"'
        return self._send(200, data, body, ETag=etag, X_Repo_Commit=COMMIT)


def serve(folders: dict[str, Path]) -> tuple[ThreadingHTTPServer, list[str]]:
    """A server on a free port, and the list of requests it gets. The caller runs and closes it."""
    seen: list[str] = []
    handler = type("Served", (Hub,), {"folders": folders, "seen": seen})
    return ThreadingHTTPServer(("127.0.0.1", 0), handler), seen
