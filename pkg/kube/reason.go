package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxReason bounds a reason's length in bytes.
const maxReason = 300

// explain gives a failed request's reason in one line, and whether the failure
// means that the server as a whole does not serve us: no answer, no access, or
// an error of its own. what is the request, such as "list services".
func explain(err error, what, server string) (reason string, away bool) {
	if limited, ok := errors.AsType[*limitedError](err); ok {
		return server + " " + limited.Error(), false
	}
	if status, ok := statusOf(err); ok {
		return explainStatus(status, what, server)
	}
	if reason := explainTLS(err); reason != "" {
		return "certificate of " + server + ": " + reason, true
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "cannot resolve " + dns.Name, true
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused to " + server, true
	case unanswered(err):
		return "no answer from " + server + " in time", true
	}
	return "cannot reach " + server + ": " + oneLine(rootOf(err)), true
}

// statusOf is the server's answer that err carries; false when there was none.
func statusOf(err error) (metav1.Status, bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}, false
	}
	return status.Status(), true
}

// refused tells whether the server answered that a resource is not for us, or not there.
func refused(err error) bool {
	status, _ := statusOf(err)
	switch status.Code {
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// expired tells whether the server no longer has, or does not yet have, the
// version asked for. The Reflector asks for another one at once.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// explainStatus is explain for an answer of the server.
func explainStatus(s metav1.Status, what, server string) (reason string, away bool) {
	message := clip(s.Message)
	switch s.Code {
	case http.StatusForbidden:
		return "forbidden: cannot " + what + ": " + message, false
	case http.StatusUnauthorized:
		return "unauthorized: " + server + " does not accept the credentials", true
	}
	return server + " answered " + strconv.Itoa(int(s.Code)) + " to " + what + ": " + message, s.Code >= http.StatusInternalServerError
}

// explainTLS gives the reason when it lies in the server's certificate; "" otherwise.
func explainTLS(err error) string {
	if v, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return oneLine(v.Err)
	}
	if u, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return oneLine(u)
	}
	if r, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return oneLine(r)
	}
	return ""
}

// rootOf leaves out the method and URL that net/http puts before a cause.
func rootOf(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// withoutPath leaves the path out of a file system's error.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// flat is err with its text in one line.
func flat(err error) error {
	if text := oneLine(err); text != err.Error() {
		return &flatError{error: err, text: text}
	}
	return err
}

type flatError struct {
	error
	text string
}

func (e *flatError) Error() string { return e.text }
func (e *flatError) Unwrap() error { return e.error }

func oneLine(err error) string { return clip(err.Error()) }

// clip gives text in one line of bounded length.
func clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}
