"""Gives back what it is sent over HTTP/1.1, with its length as a trailer. Writes its port."""

import http.server


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

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
