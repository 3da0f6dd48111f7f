package message

import "strings"

// Fields are those of a head or of trailers.
type Fields []Field

// Get gives the first value of a field, "" for none; the case of name does not matter.
func (f Fields) Get(name string) string {
	for i := range f {
		if len(f[i].Name) == len(name) && strings.EqualFold(f[i].Name, name) {
			return f[i].Value
		}
	}
	return ""
}

// Get gives the first value of a header field, "" for none; the case of name does not matter.
func (r *Request) Get(name string) string { return Fields(r.Fields).Get(name) }

// Get gives the first value of a header field, "" for none; the case of name does not matter.
func (r *Response) Get(name string) string { return Fields(r.Fields).Get(name) }
