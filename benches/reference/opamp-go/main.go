// The least that a server on opamp-go must do to serve an estate: per message with a description it
// scans the selectors of all Tiers, and offers the artefact of the most specific one unless the
// collector tells that it has it. Everything else is answered with nothing but its uid.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/open-telemetry/opamp-go/server"
	"github.com/open-telemetry/opamp-go/server/types"
	"gopkg.in/yaml.v3"
)

type pair struct{ key, value string }

type tier struct {
	id       string
	selector []pair
	offer    *protobufs.AgentRemoteConfig
}

type estate struct {
	tiers     []tier
	unmatched *protobufs.AgentRemoteConfig
}

const capabilities = uint64(protobufs.ServerCapabilities_ServerCapabilities_AcceptsStatus |
	protobufs.ServerCapabilities_ServerCapabilities_OffersRemoteConfig |
	protobufs.ServerCapabilities_ServerCapabilities_AcceptsEffectiveConfig)

const accepts = uint64(protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig)

// contentHash is SHA-256 without the leading comments and without the line that carries the commit.
func contentHash(artefact []byte) []byte {
	lines := bytes.SplitAfter(artefact, []byte("\n"))
	for len(lines) > 0 && bytes.HasPrefix(lines[0], []byte("#")) {
		lines = lines[1:]
	}
	hash := sha256.New()
	for _, line := range lines {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("telecraft.commit:")) {
			hash.Write(line)
		}
	}
	return []byte(hex.EncodeToString(hash.Sum(nil)))
}

func offerOf(path string) (*protobufs.AgentRemoteConfig, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &protobufs.AgentRemoteConfig{
		Config: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
			"": {Body: body, ContentType: "text/yaml"},
		}},
		ConfigHash: contentHash(body),
	}, nil
}

// read takes Tiers with a selector, and what is rendered for them; it ignores Rollouts.
func read(root string) (*estate, error) {
	files, err := filepath.Glob(filepath.Join(root, "teams", "*", "tiers", "*.yaml"))
	if err != nil {
		return nil, err
	}
	rendered := filepath.Join(root, "rendered")
	var all estate
	if all.unmatched, err = offerOf(filepath.Join(rendered, "_estate", "unmatched.yaml")); err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var authored struct {
			Selector map[string]string `yaml:"selector"`
		}
		if err := yaml.Unmarshal(text, &authored); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(authored.Selector) == 0 {
			continue
		}
		team := filepath.Base(filepath.Dir(filepath.Dir(file)))
		one := tier{id: team + "/" + strings.TrimSuffix(filepath.Base(file), ".yaml")}
		for key, value := range authored.Selector {
			one.selector = append(one.selector, pair{key, value})
		}
		sort.Slice(one.selector, func(a, b int) bool { return one.selector[a].key < one.selector[b].key })
		if one.offer, err = offerOf(filepath.Join(rendered, one.id+".yaml")); err != nil {
			return nil, err
		}
		all.tiers = append(all.tiers, one)
	}
	sort.Slice(all.tiers, func(a, b int) bool { return all.tiers[a].id < all.tiers[b].id })
	return &all, nil
}

// place scans all Tiers: most pairs win, the lowest id wins a tie.
func (e *estate) place(description *protobufs.AgentDescription) *protobufs.AgentRemoteConfig {
	attributes := make(map[string]string,
		len(description.NonIdentifyingAttributes)+len(description.IdentifyingAttributes))
	for _, list := range [][]*protobufs.KeyValue{
		description.NonIdentifyingAttributes, description.IdentifyingAttributes,
	} {
		for _, attribute := range list {
			if text, ok := attribute.GetValue().GetValue().(*protobufs.AnyValue_StringValue); ok {
				attributes[attribute.Key] = text.StringValue
			}
		}
	}
	best, most := e.unmatched, 0
scan:
	for at := range e.tiers {
		one := &e.tiers[at]
		for _, wanted := range one.selector {
			if found, ok := attributes[wanted.key]; !ok || found != wanted.value {
				continue scan
			}
		}
		if len(one.selector) > most {
			best, most = one.offer, len(one.selector)
		}
	}
	return best
}

func (e *estate) answer(_ context.Context, _ types.Connection, message *protobufs.AgentToServer) *protobufs.ServerToAgent {
	reply := &protobufs.ServerToAgent{InstanceUid: message.InstanceUid, Capabilities: capabilities}
	if message.AgentDescription == nil || message.Capabilities&accepts == 0 {
		return reply
	}
	offer := e.place(message.AgentDescription)
	if !bytes.Equal(message.GetRemoteConfigStatus().GetLastRemoteConfigHash(), offer.ConfigHash) {
		reply.RemoteConfig = offer
	}
	return reply
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	root := flag.String("estate", "fixtures/estates/demo", "estate with its rendered files")
	flag.Parse()
	all, err := read(*root)
	if err != nil {
		log.Fatal(err)
	}
	callbacks := types.ConnectionCallbacks{OnMessage: all.answer}
	opamp := server.New(nil)
	err = opamp.Start(server.StartSettings{
		Settings: server.Settings{Callbacks: types.Callbacks{
			OnConnecting: func(*http.Request) types.ConnectionResponse {
				return types.ConnectionResponse{Accept: true, ConnectionCallbacks: callbacks}
			},
		}},
		ListenEndpoint: *listen,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d Tiers\nlisten ws://%s/v1/opamp\n", len(all.tiers), opamp.Addr())
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
