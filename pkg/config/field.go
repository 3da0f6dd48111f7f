package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// field is one setting: its name, how text becomes its value, and where the
// value in force came from.
type field struct {
	name  string // the flag without its dashes
	kind  string // what help shows for the value
	usage string
	// plain is true when the value is a YAML number or boolean and is printed without quotes.
	plain bool
	list  bool
	// set parses and stores; a scalar gets exactly one text.
	set func(texts []string) error
	// get gives the value in force as texts that set takes.
	get func() []string
	// check judges the value in force where parsing alone cannot; may be nil.
	check func() error

	origin string // "default", "--flag", "VARIABLE", or "FILE:LINE: key"
	flags  []string
}

// key is the YAML path of the setting.
func (f *field) key() string { return strings.Replace(f.name, "-", ".", 1) }

// env is the environment variable of the setting.
func (f *field) env() string {
	return "FRESHMESH_" + strings.ToUpper(strings.ReplaceAll(f.name, "-", "_"))
}

// take stores texts on behalf of origin.
func (f *field) take(origin string, texts []string) error {
	if !f.list && len(texts) > 0 {
		texts = texts[len(texts)-1:]
	}
	if err := f.set(texts); err != nil {
		return fmt.Errorf("%s: %w", origin, err)
	}
	f.origin = origin
	return nil
}

// verify runs check on the value in force.
func (f *field) verify() error {
	if f.check == nil {
		return nil
	}
	if err := f.check(); err != nil {
		if f.origin == originDefault {
			return fmt.Errorf("--%s (%s): %w", f.name, f.origin, err)
		}
		return fmt.Errorf("%s: %w", f.origin, err)
	}
	return nil
}

// flagValue is a field as pflag sees it: it only collects texts, so that
// precedence is decided in one place. It implements pflag.Value.
type flagValue struct{ *field }

func (v flagValue) Set(text string) error {
	v.flags = append(v.flags, text)
	return nil
}

func (v flagValue) String() string { return strings.Join(v.get(), " ") }
func (v flagValue) Type() string   { return v.kind }

// scalar adds a setting of one value to the table.
func scalar[T any](t *table, p *T, name, kind, usage string, parse func(string) (T, error), format func(T) string) *field {
	f := &field{name: name, kind: kind, usage: usage, origin: originDefault}
	f.set = func(texts []string) error {
		v, err := parse(texts[0])
		if err != nil {
			return err
		}
		*p = v
		return nil
	}
	f.get = func() []string { return []string{format(*p)} }
	t.fields = append(t.fields, f)
	return f
}

// list adds a setting of several values. Each text is split by split first, so
// that one environment variable can carry several. Empty parts do not count.
func list[T any](t *table, p *[]T, name, kind, usage string, split func(string) []string, parse func(string) (T, error), format func(T) string) *field {
	f := &field{name: name, kind: kind, usage: usage, origin: originDefault, list: true}
	f.set = func(texts []string) error {
		var values []T
		for _, text := range texts {
			for _, part := range split(text) {
				v, err := parse(part)
				if err != nil {
					return err
				}
				values = append(values, v)
			}
		}
		*p = values
		return nil
	}
	f.get = func() []string {
		texts := make([]string, 0, len(*p))
		for _, v := range *p {
			texts = append(texts, format(v))
		}
		return texts
	}
	t.fields = append(t.fields, f)
	return f
}

// text adds a setting whose value is the text itself, judged by check.
func text(t *table, p *string, name, kind, usage string, check func(string) error) *field {
	parse := func(s string) (string, error) {
		if err := printable(s); err != nil {
			return "", err
		}
		return s, check(s)
	}
	return scalar(t, p, name, kind, usage, parse, func(s string) string { return s })
}

// path adds a setting that names a file or directory. Existence is judged by
// check, once, for the value in force: a path that a flag overrides need not exist.
func path(t *table, p *string, name, kind, usage string, check func(string) error) {
	f := text(t, p, name, kind, usage, anyText)
	f.check = func() error {
		if *p == "" {
			return nil
		}
		return check(*p)
	}
}

// duration adds a setting of a time span greater than 0.
func duration(t *table, p *time.Duration, name, usage string) {
	parse := func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 10s or 500ms", s)
		}
		if d <= 0 {
			return 0, fmt.Errorf("%s is not greater than 0", s)
		}
		return d, nil
	}
	scalar(t, p, name, "duration", usage, parse, time.Duration.String)
}

// optionalDuration adds a setting of a time span of which 0 means none.
func optionalDuration(t *table, p *time.Duration, name, usage string) {
	parse := func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 10s or 500ms", s)
		}
		if d < 0 {
			return 0, fmt.Errorf("%s is less than 0", s)
		}
		return d, nil
	}
	scalar(t, p, name, "duration", usage, parse, time.Duration.String)
}

// limit adds a setting of a whole number of which 0 means no limit.
func limit(t *table, p *int, name, usage string) {
	parse := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", s)
		}
		if n < 0 {
			return 0, fmt.Errorf("%d is less than 0", n)
		}
		return n, nil
	}
	f := scalar(t, p, name, "number", usage, parse, strconv.Itoa)
	f.plain = true
}

// count adds a setting of a whole number of at least 1.
func count(t *table, p *int, name, usage string) {
	parse := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", s)
		}
		if n < 1 {
			return 0, fmt.Errorf("%d is less than 1", n)
		}
		return n, nil
	}
	f := scalar(t, p, name, "number", usage, parse, strconv.Itoa)
	f.plain = true
}

// boolean adds a switch.
func boolean(t *table, p *bool, name, usage string) {
	parse := func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, fmt.Errorf("%q is neither true nor false", s)
		}
		return b, nil
	}
	f := scalar(t, p, name, "bool", usage, parse, strconv.FormatBool)
	f.plain = true
}
