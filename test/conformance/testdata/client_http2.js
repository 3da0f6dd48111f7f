// Posts bodies of many sizes at once over one HTTP/2 connection.
'use strict';

const http2 = require('node:http2');
const assert = require('node:assert');
const session = http2.connect('http://' + process.argv[2]);

function post(size) {
  return new Promise((resolve, reject) => {
    const request = session.request({ ':method': 'POST', ':path': '/echo', 'x-field': 'of node' });
    let headers = {};
    let trailers = {};
    let got = '';
    request.setEncoding('utf8');
    request.on('response', (h) => { headers = h; });
    request.on('trailers', (h) => { trailers = h; });
    request.on('data', (piece) => { got += piece; });
    request.on('error', reject);
    request.on('end', () => {
      try {
        assert.strictEqual(headers[':status'], 200);
        assert.strictEqual(headers['x-field'], 'of node');
        assert.strictEqual(got.length, size);
        assert.strictEqual(trailers['x-length'], String(size));
        resolve();
      } catch (error) { reject(error); }
    });
    request.end('x'.repeat(size));
  });
}

session.on('error', (error) => { console.error(error); process.exit(1); });
const sizes = Array.from({ length: 30 }, (_, i) => i * 7919);
Promise.all(sizes.map(post)).then(() => { session.close(); }, (error) => { console.error(error); process.exit(1); });
