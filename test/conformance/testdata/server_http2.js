// Gives back what it is sent over HTTP/2, with its length as a trailer. Writes its port.
'use strict';

const http2 = require('node:http2');

const server = http2.createServer();
server.on('stream', (stream, headers) => {
  let size = 0;
  stream.respond({ ':status': 200, 'x-field': headers['x-field'] || '' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => { stream.sendTrailers({ 'x-length': String(size) }); });
  stream.on('data', (piece) => { size += piece.length; stream.write(piece); });
  stream.on('end', () => { stream.end(); });
  stream.on('error', () => {});
});
server.listen(0, '127.0.0.1', () => { console.log(server.address().port); });
