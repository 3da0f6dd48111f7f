package bootstrap

import (
	"encoding/json"
	"fmt"
)

// The JSON of GRPC_XDS_BOOTSTRAP (gRFC A27, "xDS Bootstrap File").
type grpcBootstrap struct {
	Servers []grpcServer `json:"xds_servers"`
	Node    grpcNode     `json:"node"`
}

type grpcServer struct {
	URI      string      `json:"server_uri"`
	Creds    []grpcCreds `json:"channel_creds"`
	Features []string    `json:"server_features"`
}

type grpcCreds struct {
	Type string `json:"type"`
}

type grpcNode struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	// Locality is always written: grpc-js-xds refuses a file without one.
	Locality grpcLocality   `json:"locality"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

type grpcLocality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// GRPC gives the bootstrap of a gRPC client, as JSON. Its keepalive is the
// client's own (grpc-go: 5 minutes and 20 s); the format has no field for it,
// and the server's pings notice the same from their side.
func GRPC(o Options) ([]byte, error) {
	o.Client = ForGRPC
	if err := o.complete(); err != nil {
		return nil, err
	}
	b := grpcBootstrap{
		Servers: []grpcServer{{
			URI: o.XDSAddress, Creds: []grpcCreds{{Type: "insecure"}}, Features: []string{"xds_v3"},
		}},
		Node: grpcNode{
			ID: o.NodeID, Cluster: o.Cluster, Metadata: o.metadata(),
			Locality: grpcLocality{o.Region, o.Zone, o.SubZone},
		},
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the bootstrap of %s: %w", o.NodeID, err)
	}
	return append(text, '\n'), nil
}
