"""A W&B server on this machine, as far as W&B's own uploader asks of one. It keeps what it is sent."""

import json
import re
import threading
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "0" * 40


class Server(ThreadingHTTPServer):
    """`order`: ids of runs as they came; `history`: id -> rows. Runs in `refused` get a 403."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.order, self.history, self.refused = [], defaultdict(list), set()
        self.summary, self.operations, self.views = {}, [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """The uploader may hang up early."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, found = 200, {}
        if self.path == "/graphql":
            status, found = self.graphql(json.loads(body))
        elif self.path.endswith("/file_stream"):
            self.stream(self.path.split("/")[-2], json.loads(body).get("files", {}))
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = answer

    def graphql(self, asked):
        server, given = self.server, asked.get("variables") or {}
        operation = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])[1]
        server.operations.append(operation)
        if operation == "UpsertBucket":
            name = given["name"]
            if name not in server.order:
                server.order.append(name)
            if name in server.refused:
                return 403, {"errors": [{"message": "permission denied"}]}
            project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "someone"}}
            bucket = {"id": name, "name": name, "displayName": given.get("displayName"), "config": "{}"}
            bucket |= {"historyLineCount": 0, "sweepName": None, "project": project}
            return 200, {"data": {"upsertBucket": {"inserted": True, "bucket": bucket}}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{server.url}/upload/{name}"} for name in given["files"]]
            return 200, {"data": {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}}
        if operation in ("Viewer", "GetDefaultEntity"):
            viewer = {"id": "v", "entity": "someone", "username": "someone", "email": "", "flags": "{}"}
            return 200, {"data": {"viewer": {**viewer, "teams": {"edges": []}}}}
        if operation == "GetProjects":
            none = {"pageInfo": {"endCursor": None, "hasNextPage": False}, "edges": []}
            return 200, {"data": {"models": {"totalCount": 0, **none}}}
        if operation in ("UpsertView2", "upsertView"):
            server.views.append(given)
            view = {"id": given.get("id") or f"view{len(server.views)}", "name": given["name"], "spec": given["spec"]}
            project = {"id": "p", "name": given["projectName"], "entityName": given["entityName"]}
            return 200, {"data": {"upsertView": {"inserted": "id" not in given, "view": {**view, "project": project}}}}
        return 200, {"data": {}}

    def stream(self, run, files):
        for name, part in files.items():
            rows = [json.loads(line) for line in part["content"]]
            if name == "wandb-history.jsonl":
                self.server.history[run] += rows
            elif name == "wandb-summary.json":
                self.server.summary[run] = rows[-1]

    def log_message(self, *_):
        """Requests are counted, not printed."""


@contextmanager
def wandb_server():
    """The server, listening until the block ends."""
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
