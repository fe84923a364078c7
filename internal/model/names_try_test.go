package model

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

type sys struct {
	n string
	w []uint8
	p []uint8
	h uint8
}

const A, B, AB = onlyA, onlyB, both

var systems = []sys{
	{"ab,b|a", []uint8{AB, B, A}, []uint8{0, 0, 1}, 0},
	{"a|ab,b", []uint8{A, AB, B}, []uint8{1, 0, 0}, 0},
	{"ab|a|b", []uint8{AB, A, B}, []uint8{0, 1, 0}, 0},
	{"b,ab|a", []uint8{B, AB, A}, []uint8{0, 0, 1}, 0},
	{"b|a|ab", []uint8{B, A, AB}, []uint8{0, 1, 0}, 0},
	{"ab,a|b", []uint8{AB, A, B}, []uint8{0, 0, 1}, 0},
	{"b|ab,a", []uint8{B, AB, A}, []uint8{1, 0, 0}, 0},
	{"ab,ab|a", []uint8{AB, AB, A}, []uint8{0, 0, 1}, 0},
	{"a|ab,ab", []uint8{A, AB, AB}, []uint8{1, 0, 0}, 0},
	{"ab|ab|b", []uint8{AB, AB, B}, []uint8{0, 1, 0}, 0},
	{"ab|ab|a", []uint8{AB, AB, A}, []uint8{0, 1, 0}, 0},
	{"ab,b|b", []uint8{AB, B, B}, []uint8{0, 0, 1}, 0},
}

var fours = []sys{
	{"X,ab|ab|a!,a", []uint8{AB, AB, A, A}, []uint8{0, 1, 2, 2}, 4},
	{"ab,a|a!|b", []uint8{AB, A, A, B}, []uint8{0, 0, 1, 1}, 4},
	{"ab,a|a|b!", []uint8{AB, A, A, B}, []uint8{0, 0, 1, 1}, 8},
	{"ab,b|a!|b", []uint8{AB, B, A, B}, []uint8{0, 0, 1, 1}, 4},
	{"ab,b|a|b!", []uint8{AB, B, A, B}, []uint8{0, 0, 1, 1}, 8},
	{"a,ab|a!|b", []uint8{A, AB, A, B}, []uint8{0, 0, 1, 1}, 4},
	{"b,ab|a|b!", []uint8{B, AB, A, B}, []uint8{0, 0, 1, 1}, 8},
	{"a!,b!,ab|b", []uint8{A, B, AB, B}, []uint8{0, 0, 0, 1}, 3},
	{"a!,b!,ab|a", []uint8{A, B, AB, A}, []uint8{0, 0, 0, 1}, 3},
	{"ab!,a,b|ab", []uint8{AB, A, B, AB}, []uint8{0, 0, 0, 1}, 1},
	{"ab,a,b|ab!", []uint8{AB, A, B, AB}, []uint8{0, 0, 0, 1}, 8},
	{"ab!,ab|ab,b", []uint8{AB, AB, AB, B}, []uint8{0, 0, 1, 1}, 1},
	{"ab,ab|ab!,b", []uint8{AB, AB, AB, B}, []uint8{0, 0, 1, 1}, 4},
	{"ab!,a,ab|b", []uint8{AB, A, AB, B}, []uint8{0, 0, 0, 1}, 1},
	{"ab!,ab,b|a", []uint8{AB, AB, B, A}, []uint8{0, 0, 0, 1}, 1},
}

var flaws = []struct {
	n string
	f namesFlaws
}{
	{"L1 staysInLine", namesFlaws{staysInLine: true}},
	{"L1 allLines", namesFlaws{allLines: true}},
	{"L1 oneLine", namesFlaws{oneLine: true}},
	{"L1 anyHead", namesFlaws{anyHead: true}},
	{"V strayTries", namesFlaws{strayTries: true}},
	{"V oneTold", namesFlaws{oneTold: true}},
	{"V oneTold strayTries", namesFlaws{oneTold: true, strayTries: true}},
	{"V anyName", namesFlaws{anyName: true}},
	{"V anyName strayTries", namesFlaws{anyName: true, strayTries: true}},
	{"V anyName oneTold", namesFlaws{anyName: true, oneTold: true}},
	{"V nodesChoose", namesFlaws{nodesChoose: true}},
	{"V nodesChoose anyTold", namesFlaws{nodesChoose: true, anyTold: true}},
	{"V nodesChoose anyTold strayTries", namesFlaws{nodesChoose: true, anyTold: true, strayTries: true}},
	{"V anyTold", namesFlaws{anyTold: true}},
	{"V plainMoves", namesFlaws{plainMoves: true}},
	{"L2 together", namesFlaws{together: true}},
	{"L3 lineOnly", namesFlaws{lineOnly: true}},
	{"L4 movesSilently", namesFlaws{movesSilently: true}},
	{"L4 leavesSilently", namesFlaws{leavesSilently: true}},
	{"L4 deafs", namesFlaws{deafs: true}},
	{"L5 headsOnly", namesFlaws{headsOnly: true}},
	{"L5 firstEnters", namesFlaws{firstEnters: true}},
	{"L6 triesHeld", namesFlaws{triesHeld: true}},
	{"L6 waitsForAll", namesFlaws{waitsForAll: true}},
	{"L6 fairTriesHeld", namesFlaws{fairTriesHeld: true}},
	{"L7 bargesPast", namesFlaws{bargesPast: true}},
	{"C3 headsProcess", namesFlaws{headsProcess: true}},
	{"C3 ticketsOnly", namesFlaws{ticketsOnly: true}},
	{"C5 firstLost", namesFlaws{firstLost: true}},
	{"C5 vague", namesFlaws{vague: true}},
}

func TestFlaws(t *testing.T) {
	for _, f := range flaws {
		if only := os.Getenv("ONLY"); only != "" && !strings.Contains(f.n, only) {
			continue
		}
		for _, fair := range []bool{true, false} {
			found, none, most := "", "", 0
			for _, x := range pick() {
				if only := os.Getenv("SYS"); only != "" && only != x.n {
					continue
				}
				q := names{namesBounds: namesBounds{wants: x.w, process: x.p, holds: x.h, fair: fair, lined: os.Getenv("LINED") != "", taken: map[bool]uint8{true: onlyB}[x.n[0] == 'X'], orderly: os.Getenv("FAST") == "", patient: true, cancels: true}, namesFlaws: f.f}
				r := q.explore(1_500_000)
				most = max(most, r.States)
				if r.Violation != "" {
					found += fmt.Sprintf(" [%s %d/%d %.12s]", x.n, r.Length(), r.States, r.Violation)
					if os.Getenv("TRACE") == x.n {
						fmt.Println(r)
					}
				} else {
					none += " " + x.n
				}
			}
			fmt.Printf("%-18s fair %-5v most %7d found%s\n", f.n, fair, most, found)
		}
	}
}

func TestTry(t *testing.T) {
	for _, x := range pick() {
		if only := os.Getenv("ONLY"); only != "" && only != x.n {
			continue
		}
		for _, fair := range []bool{true, false} {
			for _, patient := range []bool{true} {
				cancels := true
				q := names{namesBounds: namesBounds{wants: x.w, process: x.p, holds: x.h, fair: fair, lined: os.Getenv("LINED") != "", taken: map[bool]uint8{true: onlyB}[x.n[0] == 'X'], orderly: os.Getenv("FAST") == "", patient: patient, cancels: cancels}}
				begin := time.Now()
				r := q.explore(1_500_000)
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

func pick() []sys {
	if os.Getenv("FOUR") != "" {
		return fours
	}
	return systems
}
