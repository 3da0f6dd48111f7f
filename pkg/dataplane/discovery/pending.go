package discovery

import "fmt"

// pendingError is why a wait for a cluster ended without an answer: how the
// control plane stands, and not that the wait was over, which helps nobody. It
// matches ErrDiscoveryPending, the error of the wait's context, and
// ErrNeverConnected where no control plane was reached since the start. Its text
// is made when somebody asks for it, since most are only compared.
type pendingError struct {
	name       string
	connection *Status
	// waited is the error of the context.
	waited error
}

func (e *pendingError) Error() string {
	s := e.connection
	switch last := "last error: " + s.LastError; {
	case s.LastError == "" && !s.Connected:
		return fmt.Sprintf("cluster %s: %v: the control plane %s is being dialled for the first time", e.name, ErrDiscoveryPending, s.Server)
	case !s.EverConnected:
		return fmt.Sprintf("cluster %s: %v: %v, now trying %s, %s", e.name, ErrDiscoveryPending, ErrNeverConnected, s.Server, last)
	case !s.Connected:
		return fmt.Sprintf("cluster %s: %v: the control plane is lost since %s, now trying %s, %s",
			e.name, ErrDiscoveryPending, s.Since.UTC().Format("15:04:05.000Z"), s.Server, last)
	}
	return fmt.Sprintf("cluster %s: %v in time by the control plane %s, whose stream is open", e.name, ErrDiscoveryPending, s.Server)
}

func (e *pendingError) Unwrap() []error {
	if e.connection.EverConnected {
		return []error{ErrDiscoveryPending, e.waited}
	}
	return []error{ErrDiscoveryPending, ErrNeverConnected, e.waited}
}
