package inject

import (
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// Config is what every proxy starts with.
type Config struct {
	// Image is the data plane's, XDSAddress the name of all control planes with the port.
	Image, XDSAddress string
	ClusterDomain     string
	// LogLevel is one of trace, debug, info, warn, error and off.
	LogLevel string
	// CPU and Memory are requests, MemoryLimit is the only limit.
	CPU, Memory, MemoryLimit resource.Quantity
}

// setting is one key of the ConfigMap, which is also a flag of the command, and
// an annotation of pods unless that is "".
type setting struct {
	name, usage, standard string
	annotation            string
	set                   func(*Config, string) error
}

// settings are all keys; none may be missing in a ConfigMap.
var settings = []setting{
	{"image", "`image` of the data plane", "freshmesh/dataplane:dev", proxyImage, text(func(c *Config) *string { return &c.Image })},
	{
		"xds-address", "`address` of the control plane: a name that has the addresses of all replicas, and the port",
		"xds-server-headless.freshmesh.svc.cluster.local:18000", "", text(func(c *Config) *string { return &c.XDSAddress }),
	},
	{"cluster-domain", "`domain`, the last part of service names", "cluster.local", "", text(func(c *Config) *string { return &c.ClusterDomain })},
	{"log-level", "log `level` of the proxy", "info", proxyLogLevel, logLevel},
	{"cpu", "`quantity` of CPU that a proxy requests", "20m", proxyCPU, quantity(func(c *Config) *resource.Quantity { return &c.CPU })},
	{"memory", "`quantity` of memory that a proxy requests", "48Mi", proxyMemory, quantity(func(c *Config) *resource.Quantity { return &c.Memory })},
	{"memory-limit", "`quantity` of memory that a proxy may take", "256Mi", proxyMemoryLimit, quantity(func(c *Config) *resource.Quantity { return &c.MemoryLimit })},
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, s string) error {
		if *field(c) = s; s == "" {
			return errors.New("must not be empty")
		}
		return nil
	}
}

func quantity(field func(*Config) *resource.Quantity) func(*Config, string) error {
	return func(c *Config, s string) error {
		q, err := resource.ParseQuantity(s)
		if *field(c) = q; err != nil {
			return fmt.Errorf("%q: want a quantity such as 50m or 64Mi", s)
		}
		return nil
	}
}

func logLevel(c *Config, s string) error {
	if c.LogLevel = s; !slices.Contains([]string{"trace", "debug", "info", "warn", "error", "off"}, s) {
		return fmt.Errorf("%q: want trace, debug, info, warn, error or off", s)
	}
	return nil
}

// DefaultConfig is what configs/kubernetes/injection/config.yaml says.
func DefaultConfig() Config {
	var c Config
	for _, s := range settings {
		if err := s.set(&c, s.standard); err != nil {
			panic("inject: default of " + s.name + ": " + err.Error())
		}
	}
	return c
}

// ConfigOf reads a ConfigMap's data, as the policy does: every key has to be
// there, and others are errors.
func ConfigOf(data map[string]string) (Config, error) {
	var c Config
	var wrong []error
	for _, s := range settings {
		value, ok := data[s.name]
		if !ok {
			wrong = append(wrong, fmt.Errorf("data.%s: missing", s.name))
		} else if err := s.set(&c, value); err != nil {
			wrong = append(wrong, fmt.Errorf("data.%s: %w", s.name, err))
		}
	}
	for name := range data {
		if !slices.ContainsFunc(settings, func(s setting) bool { return s.name == name }) {
			wrong = append(wrong, fmt.Errorf("data.%s: unknown key", name))
		}
	}
	return c, errors.Join(wrong...)
}

// readConfigMap reads a file that holds one ConfigMap.
func readConfigMap(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("--config-map: %w", err)
	}
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return Config{}, fmt.Errorf("--config-map %s: %w", path, err)
	}
	if m.Kind != "ConfigMap" {
		return Config{}, fmt.Errorf("--config-map %s: holds a %q, not a ConfigMap", path, m.Kind)
	}
	c, err := ConfigOf(m.Data)
	if err != nil {
		return c, fmt.Errorf("--config-map %s: %w", path, err)
	}
	return c, nil
}
