package model

import (
	"fmt"
	"os"
	"testing"
)

func TestSweep(t *testing.T) {
	if os.Getenv("SWEEP") == "" {
		t.Skip()
	}
	for _, b := range []queueBounds{queueTwo, queueFairTwo, queueGrace, queueFair, queueLine, queueFairLine, queueGivesUp, queueLossy} {
		b2 := b
		r := queue{b2, queueFlaws{onlyWoken: true}}.explore(1000000)
		r.Trace = r.Trace[:0:0]
		fmt.Println(b.name, "|", r)
	}
}
