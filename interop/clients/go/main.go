// A collector's view of the gateway through opamp-go: it describes itself, takes what it is offered,
// reports APPLIED and heartbeats. Every event is one JSON line on standard output; it stops when
// standard input ends.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/open-telemetry/opamp-go/client"
	"github.com/open-telemetry/opamp-go/client/types"
	"github.com/open-telemetry/opamp-go/protobufs"
)

type attributes []*protobufs.KeyValue

func (a *attributes) String() string { return fmt.Sprint(*a) }

func (a *attributes) Set(pair string) error {
	key, value, found := strings.Cut(pair, "=")
	if !found {
		return fmt.Errorf("%q is not KEY=VALUE", pair)
	}
	*a = append(*a, &protobufs.KeyValue{
		Key:   key,
		Value: &protobufs.AnyValue{Value: &protobufs.AnyValue_StringValue{StringValue: value}},
	})
	return nil
}

var printing sync.Mutex

func emit(event map[string]any) {
	printing.Lock()
	defer printing.Unlock()
	line, err := json.Marshal(event)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Errorf(_ context.Context, format string, v ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", v...)
}

func main() {
	var identifying, other attributes
	endpoint := flag.String("endpoint", "", "ws:// or http:// URL")
	heartbeat := flag.Duration("heartbeat", 30*time.Second, "heartbeat or poll interval")
	compress := flag.Bool("compress", false, "gzip requests (HTTP), offer permessage-deflate (WebSocket)")
	flag.Var(&identifying, "identifying", "KEY=VALUE, repeatable")
	flag.Var(&other, "attribute", "non-identifying KEY=VALUE, repeatable")
	flag.Parse()

	var opamp client.OpAMPClient
	if strings.HasPrefix(*endpoint, "ws") {
		opamp = client.NewWebSocket(quiet{})
	} else {
		opamp = client.NewHTTP(quiet{})
	}
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	must(opamp.SetAgentDescription(&protobufs.AgentDescription{
		IdentifyingAttributes: identifying, NonIdentifyingAttributes: other,
	}))
	must(opamp.SetHealth(&protobufs.ComponentHealth{Healthy: true}))
	capabilities := protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus |
		protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsRemoteConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsEffectiveConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsHealth |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsHeartbeat
	must(opamp.SetCapabilities(&capabilities))

	var held sync.Mutex
	effective := &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
		"": {Body: []byte("receivers: {}\n"), ContentType: "text/yaml"},
	}}
	uid := uuid.Must(uuid.NewV7())
	must(opamp.Start(context.Background(), types.StartSettings{
		OpAMPServerURL:    *endpoint,
		InstanceUid:       types.InstanceUid(uid),
		HeartbeatInterval: heartbeat,
		EnableCompression: *compress,
		Callbacks: types.Callbacks{
			OnConnect: func(context.Context) { emit(map[string]any{"event": "connected"}) },
			OnConnectFailed: func(_ context.Context, err error) {
				emit(map[string]any{"event": "connect_failed", "error": err.Error()})
			},
			OnError: func(_ context.Context, err *protobufs.ServerErrorResponse) {
				emit(map[string]any{"event": "error", "error": err.ErrorMessage})
			},
			GetEffectiveConfig: func(context.Context) (*protobufs.EffectiveConfig, error) {
				held.Lock()
				defer held.Unlock()
				return &protobufs.EffectiveConfig{ConfigMap: effective}, nil
			},
			OnMessage: func(ctx context.Context, message *types.MessageData) {
				if message.AgentIdentification != nil {
					emit(map[string]any{"event": "new_uid"})
				}
				if message.RemoteConfig == nil {
					return
				}
				files := map[string]any{}
				for name, file := range message.RemoteConfig.Config.ConfigMap {
					files[name] = map[string]any{"content_type": file.ContentType, "body": file.Body}
				}
				emit(map[string]any{
					"event": "offer", "hash": hex.EncodeToString(message.RemoteConfig.ConfigHash), "files": files,
				})
				held.Lock()
				effective = message.RemoteConfig.Config
				held.Unlock()
				must(opamp.SetRemoteConfigStatus(&protobufs.RemoteConfigStatus{
					LastRemoteConfigHash: message.RemoteConfig.ConfigHash,
					Status:               protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED,
				}))
				must(opamp.UpdateEffectiveConfig(ctx))
			},
		},
	}))
	emit(map[string]any{"event": "started", "uid": uid.String()})
	_, err := io.Copy(io.Discard, os.Stdin)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(opamp.Stop(ctx))
	emit(map[string]any{"event": "stopped"})
}
