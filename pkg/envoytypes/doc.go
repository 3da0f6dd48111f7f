// Package envoytypes links every message type of Envoy's v3 API that a resource
// can be of, or can hold in an Any. It has no code: who decodes xDS resources as
// JSON, or Envoy's own dumps of them, imports it for its effect on the
// protobuf registry (protoregistry.GlobalTypes). This is the one place that
// decides what can be decoded.
package envoytypes
