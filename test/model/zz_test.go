package model

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

func TestZZ(t *testing.T) {
	for i := range 3 {
		specs := []nodeSpec{{Delta: true, Zone: "za"}, {Zone: "zb"}, {Delta: true, Zone: "zb"}}
		h := steps().Example(i * 7)
		synctest.Test(t, func(t *testing.T) {
			log, wrong := run(t, specs, h)
			for _, l := range log {
				fmt.Fprintln(os.Stderr, l)
			}
			fmt.Fprintln(os.Stderr, "WRONG", wrong)
		})
	}
	_ = rapid.Bool
}
