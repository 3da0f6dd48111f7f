"""A gRPC client that resolves its targets through xDS. Lines in, lines out:

  call TARGET      ->  ok BASE64 | error CODE MESSAGE

TARGET is xds:///NAME. BASE64 is the response message, grpc.testing.SimpleResponse.
Ends with its standard input.
"""

import base64
import os
import sys

import grpc

METHOD = "/grpc.testing.TestService/UnaryCall"
TIMEOUT_SECONDS = float(os.environ.get("CALL_TIMEOUT_MS", "3000")) / 1000

calls = {}


def call(target):
    if target not in calls:
        # None as (de)serializer: bytes pass as they are.
        calls[target] = grpc.insecure_channel(target).unary_unary(METHOD, None, None)
    try:
        body = calls[target](b"", timeout=TIMEOUT_SECONDS)
    except grpc.RpcError as error:
        return f"error {error.code().name} {error.details()}"
    return "ok " + base64.b64encode(body).decode()


def main():
    for line in sys.stdin:
        verb, _, target = line.strip().partition(" ")
        answer = call(target) if verb == "call" else f"error UNIMPLEMENTED {verb}"
        print(" ".join(answer.split()), flush=True)
    # Channels are left to the end of the process: closing them may wait.
    sys.stdout.flush()
    os._exit(0)


main()
