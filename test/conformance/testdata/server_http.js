// Gives back what it is sent over HTTP/1.1, with its length as a trailer. Writes its port.
'use strict';

const http = require('node:http');

const server = http.createServer((request, response) => {
  let size = 0;
  response.writeHead(200, { 'X-Field': request.headers['x-field'] || '', Trailer: 'X-Length' });
  response.flushHeaders();
  request.on('data', (piece) => { size += piece.length; response.write(piece); });
  request.on('end', () => { response.addTrailers({ 'X-Length': String(size) }); response.end(); });
});
server.listen(0, '127.0.0.1', () => { console.log(server.address().port); });
