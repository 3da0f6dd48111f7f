package http1

// Error is a message that cannot be accepted. What follows on its connection has no meaning.
type Error struct {
	// Status is what a client is told; a response has no use for it.
	Status int
	Text   string
}

// Error gives the text.
func (e *Error) Error() string { return e.Text }

// The reasons are values, so that refusing costs nothing.
var (
	errBareLF        = &Error{400, "a line does not end in CRLF"}
	errRequestLine   = &Error{400, "malformed request line"}
	errMethod        = &Error{400, "the method is not a token"}
	errTarget        = &Error{400, "malformed request target"}
	errVersion       = &Error{505, "the version is neither HTTP/1.0 nor HTTP/1.1"}
	errStatusLine    = &Error{502, "malformed status line"}
	errFold          = &Error{400, "a line begins with white space"}
	errFieldName     = &Error{400, "a field name is not a token with a colon after it"}
	errFieldValue    = &Error{400, "a field value has a control byte"}
	errHeadTooLarge  = &Error{431, "the head is too large"}
	errTooManyFields = &Error{431, "the head has too many fields"}
	errHost          = &Error{400, "malformed Host"}
	errNoHost        = &Error{400, "Host is missing"}
	errManyHosts     = &Error{400, "more than one Host"}
	errHostConflict  = &Error{400, "Host and the request target name different authorities"}
	errLength        = &Error{400, "malformed Content-Length"}
	errManyLengths   = &Error{400, "more than one Content-Length"}
	errCoding        = &Error{501, "the transfer coding is not one chunked"}
	errLengthCoding  = &Error{400, "Content-Length beside Transfer-Encoding"}
	errCoding10      = &Error{400, "Transfer-Encoding in HTTP/1.0"}
	errExpect        = &Error{417, "only 100-continue can be expected"}
	errConnectBody   = &Error{400, "CONNECT with a body"}
	errChunkSize     = &Error{400, "malformed chunk size"}
	errChunkExt      = &Error{400, "malformed or too long chunk extension"}
	errChunkEnd      = &Error{400, "a chunk does not end where its size says"}
	errChunkOverhead = &Error{400, "the chunks have too little data in them"}
	errTrailers      = &Error{400, "the trailers are too large"}
	errTrailerName   = &Error{400, "a trailer that may not be one"}
)
