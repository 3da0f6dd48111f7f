"""Gives back what it is sent over HTTP/1.1, with its length as a trailer, and 100,000 bytes to GET
in each of the ways in which a body can end. Speaks the version that it is called with. Writes its port."""

import http.server
import sys


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = sys.argv[1]

    def log_message(self, *args):
        pass

    def body(self):
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def do_GET(self):
        body = b"y" * 100_000
        self.send_response(200)
        if self.path == "/length":
            self.send_header("Content-Length", str(len(body)))
        elif self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.body()
        self.send_response(200)
        self.send_header("X-Field", self.headers.get("x-field", ""))
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Length")
        self.end_headers()
        if body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        self.wfile.write(b"0\r\nX-Length: %d\r\n\r\n" % len(body))


class Server(http.server.ThreadingHTTPServer):
    # By itself it is 5, and the kernel resets connections that do not fit.
    request_queue_size = 128
    daemon_threads = True


server = Server(("127.0.0.1", 0), Echo)
print(server.server_port, flush=True)
server.serve_forever()
