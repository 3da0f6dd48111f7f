package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"sigs.k8s.io/yaml"
)

// write prints m as o.Output says.
func write(w io.Writer, o Options, m Merged) error {
	var text []byte
	var err error
	switch o.Output {
	case JSON:
		text, err = json.MarshalIndent(m, "", "  ")
		text = append(text, '\n')
	case YAML:
		text, err = yaml.Marshal(m) // by the JSON names
	default:
		text = []byte(table(o, m))
	}
	if err != nil {
		return fmt.Errorf("as %s: %w", o.Output, err)
	}
	_, err = w.Write(text)
	return err
}

// The colours of states, as ANSI escapes.
var colours = map[ack.State]string{
	ack.Fresh: "\x1b[32m", ack.Pending: "\x1b[33m", ack.Stale: "\x1b[31m", ack.Rejected: "\x1b[31m", ack.Disconnected: "\x1b[2m",
}

const colourOff = "\x1b[0m"

// row is a line of aligned cells, and lines of any text that follow it.
type row struct {
	cells []string
	below []string
	// state colours the cell at stateColumn; "" colours nothing.
	state ack.State
}

const stateColumn = 2

// writeRows aligns the cells of all rows; the last cell of a row is not padded.
func writeRows(b *strings.Builder, rows []row, colour bool) {
	var widths []int
	for _, r := range rows {
		for i, c := range r.cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		var line strings.Builder
		for i, c := range r.cells {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2)
			if colour && i == stateColumn && colours[r.state] != "" {
				c = colours[r.state] + c + colourOff
			}
			line.WriteString(c)
			if i < len(r.cells)-1 {
				line.WriteString(padding)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		for _, text := range r.below {
			b.WriteString(text + "\n")
		}
	}
}

// shorten cuts the middle out of what is longer than limit runes.
func shorten(text string, limit int) string {
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	head := limit / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(limit-head-1):])
}
