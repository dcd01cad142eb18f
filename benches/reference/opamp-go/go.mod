module tidegate.dev/benches/reference

go 1.24.0

require (
	github.com/open-telemetry/opamp-go v0.23.0
	gopkg.in/yaml.v3 v3.0.1
)

require (
	github.com/gorilla/websocket v1.5.3 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
