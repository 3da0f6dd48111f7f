package http2

import (
	"errors"

	"golang.org/x/net/http2"
)

// ConnError ends a connection: it is what the GOAWAY says.
type ConnError struct {
	Code http2.ErrCode
	// Abuse is set where Abusive is.
	Abuse   Abuse
	Abusive bool
	Text    string
}

// Error gives the code and what happened.
func (e *ConnError) Error() string { return e.Code.String() + ": " + e.Text }

func protocolError(text string) error {
	return &ConnError{Code: http2.ErrCodeProtocol, Text: text}
}

func flowError(text string) error {
	return &ConnError{Code: http2.ErrCodeFlowControl, Text: text}
}

func abusive(a Abuse, text string) error {
	return &ConnError{Code: http2.ErrCodeEnhanceYourCalm, Abuse: a, Abusive: true, Text: text}
}

// errClosed ends a connection without a word: it is over already, or nothing is left to do on it.
var errClosed = errors.New("the connection is closed")
