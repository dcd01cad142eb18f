// A collector's view of the gateway through @elastic/opamp-client-node (HTTP).
// Every event is one JSON line on standard output; it stops when standard input ends.
'use strict';

const {parseArgs} = require('node:util');
const diagnostics = require('node:diagnostics_channel');
const {
    createOpAMPClient,
    AgentCapabilities,
    RemoteConfigStatuses,
} = require('@elastic/opamp-client-node');

const {values: options} = parseArgs({
    options: {
        endpoint: {type: 'string'},
        heartbeat: {type: 'string', default: '30'},
        identifying: {type: 'string', multiple: true, default: []},
        attribute: {type: 'string', multiple: true, default: []},
    },
});
const emit = (event) => process.stdout.write(JSON.stringify(event) + '\n');
const pairs = (list) =>
    Object.fromEntries(list.map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));

diagnostics.subscribe('opamp-client.send.fail', ({err}) => emit({event: 'connect_failed', error: String(err)}));

const client = createOpAMPClient({
    endpoint: options.endpoint,
    heartbeatIntervalSeconds: Number(options.heartbeat),
    diagEnabled: true,
    capabilities:
        AgentCapabilities.AgentCapabilities_AcceptsRemoteConfig |
        AgentCapabilities.AgentCapabilities_ReportsRemoteConfig,
    onMessage: ({remoteConfig}) => {
        if (!remoteConfig) {
            return;
        }
        const files = {};
        for (const [name, file] of Object.entries(remoteConfig.config.configMap)) {
            files[name] = {content_type: file.contentType, body: Buffer.from(file.body).toString('base64')};
        }
        emit({event: 'offer', hash: Buffer.from(remoteConfig.configHash).toString('hex'), files});
        client.setRemoteConfigStatus({
            status: RemoteConfigStatuses.RemoteConfigStatuses_APPLIED,
            lastRemoteConfigHash: remoteConfig.configHash,
        });
    },
});
client.setAgentDescription({
    identifyingAttributes: pairs(options.identifying),
    nonIdentifyingAttributes: pairs(options.attribute),
});
client.start();
emit({event: 'started'});
process.stdin.resume();
process.stdin.on('end', async () => {
    await client.shutdown();
    emit({event: 'stopped'});
    process.exit(0);
});
