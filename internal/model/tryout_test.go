package model

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTryout(t *testing.T) {
	only := os.Getenv("ONLY")
	if only == "" {
		t.Skip()
	}
	limit := 6_000_000
	if os.Getenv("LIMIT") != "" {
		fmt.Sscan(os.Getenv("LIMIT"), &limit)
	}
	for _, c := range append(Sound(), Mutations()...) {
		if !strings.HasPrefix(c.Model, os.Getenv("MODEL")) || only != "all" && !strings.Contains(c.Name, only) {
			continue
		}
		if os.Getenv("SMALL") != "" && c.Size == Large {
			continue
		}
		start := time.Now()
		r := c.Explore(limit)
		kind := "sound"
		if c.Rule != "" {
			kind = "MUT"
		}
		fmt.Printf("%-6s %-9s %-70s %9d states %3d steps %5.1fs %v %s\n", kind, c.Model, c.Name, r.States, r.Length(), time.Since(start).Seconds(), r.Complete, r.Violation)
		if os.Getenv("TRACE") != "" || kind == "sound" && r.Violation != "" {
			fmt.Println(r)
		}
	}
}
