package clustercheck

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// State is how one finding stands.
type State string

// The states.
const (
	OK State = "ok"
	// Warning is what costs something, or what could not be judged.
	Warning State = "warning"
	Missing State = "missing"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Check is server, api, rights, install, inject or ports.
	Check string `json:"check"`
	State State  `json:"state"`
	// Message says in one line what was found, Remedy what helps; "" where nothing needs help.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Report is all of it.
type Report struct {
	// Server is the API server's host and port, Version its version; "" while unknown.
	Server  string `json:"server"`
	Version string `json:"version,omitempty"`
	// Missing and Warnings count findings.
	Missing  int `json:"missing"`
	Warnings int `json:"warnings"`
	// Findings are in the order in which things were looked at.
	Findings []Finding `json:"findings"`
}

func (r *Report) add(check string, state State, remedy, format string, args ...any) {
	switch state {
	case OK:
		remedy = ""
	case Warning:
		r.Warnings++
	case Missing:
		r.Missing++
	}
	message := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	r.Findings = append(r.Findings, Finding{Check: check, State: state, Message: message, Remedy: remedy})
}

// text writes the report for people.
func (r *Report) text(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-8s %-8s %s\n", f.State, f.Check, f.Message)
		for line := range strings.Lines(f.Remedy) {
			fmt.Fprintf(&b, "%-17s > %s\n", "", strings.TrimSuffix(line, "\n"))
		}
	}
	fmt.Fprintf(&b, "%d missing, %d warnings\n", r.Missing, r.Warnings)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}
