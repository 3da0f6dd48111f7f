// A gRPC client that resolves its targets through xDS. Lines in, lines out:
//
//   call TARGET      →  ok BASE64 | error CODE MESSAGE
//
// TARGET is xds:///NAME. BASE64 is the response message, grpc.testing.SimpleResponse.
// Ends with its standard input.
'use strict';

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const method = '/grpc.testing.TestService/UnaryCall';
const timeoutMs = Number(process.env.CALL_TIMEOUT_MS || 3000);
const asIs = (bytes) => bytes;
const clients = new Map();

function clientOf(target) {
  if (!clients.has(target)) {
    clients.set(target, new grpc.Client(target, grpc.credentials.createInsecure()));
  }
  return clients.get(target);
}

function call(target) {
  return new Promise((resolve) => {
    const deadline = Date.now() + timeoutMs;
    clientOf(target).makeUnaryRequest(method, asIs, asIs, Buffer.alloc(0), new grpc.Metadata(), { deadline }, (error, body) => {
      resolve(error ? `error ${grpc.status[error.code]} ${error.details}` : `ok ${body.toString('base64')}`);
    });
  });
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, target] = line.split(' ');
    const answer = verb === 'call' ? await call(target) : `error UNIMPLEMENTED ${verb}`;
    process.stdout.write(answer.replace(/\s+/g, ' ') + '\n');
  }
  process.exit(0);
}

main();
