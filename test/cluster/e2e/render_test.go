package e2e

import (
	"bytes"
	"embed"
	"strings"
	"text/template"
)

//go:embed testdata/*.yaml
var testdata embed.FS

// render fills in a template of testdata; others can be included, with indentation.
func render(name string, data any) ([]byte, error) {
	all := template.New("")
	all.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, data)
			return strings.TrimSuffix(out.String(), "\n"), err
		},
		"indent": func(by int, text string) string {
			space := strings.Repeat(" ", by)
			return space + strings.ReplaceAll(text, "\n", "\n"+space)
		},
	}).Option("missingkey=error")
	if _, err := all.ParseFS(testdata, "testdata/*.yaml"); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := all.ExecuteTemplate(&out, name, data)
	return out.Bytes(), err
}

// backend is what backend.yaml and pod.yaml need.
type backend struct {
	Name     string
	Replicas int
	// Strategy and PreStop are YAML; PreStop "" is what injection makes of it.
	Strategy, PreStop string
	// Version is part of the pod template: another one is a rollout.
	Version string
	// Grace is in seconds.
	Grace int
	// Nodes are those that the pods may run on, as a YAML list; "" is all.
	Nodes string
	// Spread is a label of nodes that the pods are spread by; "" for none.
	Spread string
	Args   []string
	// Mesh pods get a proxy by injection.
	Mesh bool
}

// noHook is a preStop that does nothing: the barrier is not put in its place.
const noHook = "{exec: {command: [/bin/true]}}"

// plain is a backend without a proxy.
func plain(name string, replicas int) backend {
	return backend{Name: name, Replicas: replicas, Strategy: rolling("25%", "25%"), Version: "1", Grace: 5}
}

// inMesh is a backend as it is meant to run: with a data plane, and the barrier of half the grace.
func inMesh(name string, replicas int, strategy string) backend {
	return backend{
		Name: name, Replicas: replicas, Strategy: strategy, Version: "1", Grace: 50, Mesh: true,
	}
}

func rolling(maxSurge, maxUnavailable string) string {
	return `{type: RollingUpdate, rollingUpdate: {maxSurge: "` + maxSurge + `", maxUnavailable: "` + maxUnavailable + `"}}`
}
