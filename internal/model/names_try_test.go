package model

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	type sys struct {
		n string
		w []uint8
		p []uint8
	}
	A, B, AB := onlyA, onlyB, both
	for _, x := range []sys{
		{"ab,b|a", []uint8{AB, B, A}, []uint8{0, 0, 1}},
		{"a|ab,b", []uint8{A, AB, B}, []uint8{1, 0, 0}},
		{"ab|a|b", []uint8{AB, A, B}, []uint8{0, 1, 0}},
		{"b,ab|a", []uint8{B, AB, A}, []uint8{0, 0, 1}},
		{"b|a|ab", []uint8{B, A, AB}, []uint8{0, 1, 0}},
		{"ab,a|b", []uint8{AB, A, B}, []uint8{0, 0, 1}},
		{"b|ab,a", []uint8{B, AB, A}, []uint8{1, 0, 0}},
		{"ab,ab|a", []uint8{AB, AB, A}, []uint8{0, 0, 1}},
		{"a|ab,ab", []uint8{A, AB, AB}, []uint8{1, 0, 0}},
		{"ab|ab|b", []uint8{AB, AB, B}, []uint8{0, 1, 0}},
		{"ab|ab|a", []uint8{AB, AB, A}, []uint8{0, 1, 0}},
		{"ab,b|b", []uint8{AB, B, B}, []uint8{0, 0, 1}},
	} {
		if only := os.Getenv("ONLY"); only != "" && only != x.n {
			continue
		}
		for _, fair := range []bool{true, false} {
			for _, patient := range []bool{true, false} {
				cancels := true
				q := names{namesBounds: namesBounds{wants: x.w, process: x.p, fair: fair, orderly: os.Getenv("FAST") == "", patient: patient, cancels: cancels}}
				begin := time.Now()
				r := q.explore(3_000_000)
				v := r.Violation
				if !r.Complete && v == "" {
					v = "INCOMPLETE"
				}
				fmt.Printf("%-10s fair %-5v patient %-5v %8d states %d steps %v %s\n", x.n, fair, patient, r.States, r.Length(), time.Since(begin).Round(time.Millisecond), v)
				if r.Violation != "" && os.Getenv("TRACE") != "" {
					fmt.Println(r)
				}
			}
		}
	}
}
