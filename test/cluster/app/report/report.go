// Package report is the form in which command app says what its clients saw.
package report

import "time"

// Stats is by kind of client: http, grpc, stream, ws, tcp.
type Stats struct {
	Kinds map[string]*Kind
}

// Kind is what the clients of one kind saw.
type Kind struct {
	// Sent counts requests and messages, Failed those without their answer.
	Sent, Failed int
	// Failures are the last hundred.
	Failures []Failure
	// Answers are by the backend's name.
	Answers map[string]Backend
	// Opened counts connections and streams; Byes those that a backend asked to be begun anew;
	// Retried the requests that the gRPC library itself sent again.
	Opened, Byes, Retried int
	Slowest               time.Duration
}

// Failure is one request that failed.
type Failure struct {
	// Sent is when it was sent, At when it had failed.
	Sent, At time.Time
	Text     string
}

// Backend is what one backend answered.
type Backend struct {
	Count       int
	First, Last time.Time
}
