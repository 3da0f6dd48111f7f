// Posts bodies of many sizes over HTTP/1.1, with and without a length, on few connections.
'use strict';

const http = require('node:http');
const assert = require('node:assert');
const [host, port] = process.argv[2].split(':');
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });

function post(size) {
  const body = 'x'.repeat(size);
  return new Promise((resolve, reject) => {
    const request = http.request({ host, port, agent, method: 'POST', path: '/echo', headers: { 'X-Field': 'of node' } }, (response) => {
      let got = '';
      response.setEncoding('utf8');
      response.on('data', (piece) => { got += piece; });
      response.on('error', reject);
      response.on('end', () => {
        try {
          assert.strictEqual(response.statusCode, 200);
          assert.strictEqual(response.headers['x-field'], 'of node');
          assert.strictEqual(got.length, size);
          assert.strictEqual(response.trailers['x-length'], String(size));
          resolve();
        } catch (error) { reject(error); }
      });
    });
    request.on('error', reject);
    if (size % 2) {
      request.end(body);
    } else {
      request.write(body.slice(0, size / 2));
      request.end(body.slice(size / 2));
    }
  });
}

const sizes = Array.from({ length: 30 }, (_, i) => i * 7919);
Promise.all(sizes.map(post)).then(() => { agent.destroy(); }, (error) => { console.error(error); process.exit(1); });
