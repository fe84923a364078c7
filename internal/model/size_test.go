package model

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	lim, _ := strconv.Atoi(os.Getenv("LIM"))
	if lim == 0 {
		t.Skip()
	}
	cs := Sound()
	if os.Getenv("MUT") != "" {
		cs = append(cs[:0], Mutations()...)
	}
	for _, c := range cs {
		if !strings.Contains(c.Model+"/"+c.Name, os.Getenv("PAT")) {
			continue
		}
		t0 := time.Now()
		r := c.Explore(lim)
		if os.Getenv("TR") == "" {
			r.Trace = r.Trace[:0:0]
		}
		fmt.Println(c.Model, "|", c.Name, "|", r, time.Since(t0).Round(time.Millisecond))
	}
}
