"""Gives back what it is sent over HTTP/2, by Python's h2, with its length as a trailer. Writes its port."""

import asyncio

import h2.config
import h2.connection
import h2.events
import h2.exceptions


class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.waiting = {}  # stream → bytes that are still to be sent
        self.size = {}  # stream → bytes that came
        self.ended = set()
        self.flush()

    def data_received(self, data):
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            self.flush()
            self.transport.close()
            return
        for event in events:
            self.on(event)
        for stream in list(self.waiting):
            self.send(stream)
        self.flush()

    def on(self, event):
        if isinstance(event, h2.events.RequestReceived):
            fields = dict(event.headers)
            self.h2.send_headers(event.stream_id, [(":status", "200"), ("x-field", fields.get("x-field", ""))])
            self.waiting[event.stream_id], self.size[event.stream_id] = bytearray(), 0
        elif isinstance(event, h2.events.DataReceived):
            self.waiting[event.stream_id] += event.data
            self.size[event.stream_id] += len(event.data)
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.waiting.pop(event.stream_id, None)

    def send(self, stream):
        body = self.waiting[stream]
        while body:
            n = min(len(body), self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if n <= 0:
                return
            self.h2.send_data(stream, bytes(body[:n]))
            del body[:n]
        if stream in self.ended:
            self.h2.send_headers(stream, [("x-length", str(self.size[stream]))], end_stream=True)
            del self.waiting[stream]

    def flush(self):
        self.transport.write(self.h2.data_to_send())


async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
