"""A collector's view of the gateway through opentelemetry-opamp-client (HTTP).

Every event is one JSON line on standard output; it stops when standard input ends.
"""

import argparse
import base64
import json
import sys
import threading

from opentelemetry._opamp.agent import OpAMPAgent
from opentelemetry._opamp.callbacks import OpAMPCallbacks
from opentelemetry._opamp.client import OpAMPClient
from opentelemetry._opamp.proto import opamp_pb2

printing = threading.Lock()


def emit(**event):
    with printing:
        print(json.dumps(event), flush=True)


class Collector(OpAMPCallbacks):
    def on_connect_failed(self, agent, client, error):
        emit(event="connect_failed", error=str(error))

    def on_error(self, agent, client, error_response):
        emit(event="error", error=error_response.error_message)

    def on_message(self, agent, client, message):
        offer = message.remote_config
        if offer is None:
            return
        files = {
            name: {"content_type": file.content_type, "body": base64.b64encode(file.body).decode()}
            for name, file in offer.config.config_map.items()
        }
        emit(event="offer", hash=offer.config_hash.hex(), files=files)
        status = client.update_remote_config_status(
            offer.config_hash, opamp_pb2.RemoteConfigStatuses_APPLIED
        )
        if status is not None:
            agent.send(client.build_remote_config_status_response_message(status))


def pairs(values):
    return dict(value.split("=", 1) for value in values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--heartbeat", type=float, default=30, help="seconds")
    parser.add_argument("--identifying", action="append", default=[])
    parser.add_argument("--attribute", action="append", default=[])
    options = parser.parse_args()
    client = OpAMPClient(
        endpoint=options.endpoint,
        agent_identifying_attributes=pairs(options.identifying),
        agent_non_identifying_attributes=pairs(options.attribute),
    )
    agent = OpAMPAgent(interval=options.heartbeat, callbacks=Collector(), client=client)
    agent.start()
    emit(event="started")
    sys.stdin.read()
    agent.stop()
    emit(event="stopped")


if __name__ == "__main__":
    main()
