"""A list of notes. The page keeps its state here, where verifiers read it."""

import json
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

kept = {"first": None, "now": None}


class Notes(SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/api/state":
            self.answer(404 if kept["now"] is None else 200, kept["now"])
        else:
            super().do_GET()

    def do_PUT(self):
        kept["now"] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kept["first"] = kept["first"] or kept["now"]
        self.answer(200, "kept")

    def do_POST(self):
        kept["now"] = kept["first"]
        self.answer(200, "reset")

    def answer(self, code, value):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())


ThreadingHTTPServer(("", int(sys.argv[sys.argv.index("--port") + 1])), Notes).serve_forever()
