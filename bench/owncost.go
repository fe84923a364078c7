package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seed14bd9ef4/redsync/proof/cost"
)

// The two checkouts that the scene compares.
const (
	thisCheckout = "this checkout"
	beside       = "the checkout beside it"
)

var ownCostScene = scene{
	name: "own-cost",
	about: "What the library itself costs, on nodes in the process that answer at once and allocate nothing " +
		"(proof/cost). Times are processor time of one call, with one CPU; of a held lock, of its NewMutex and Lock. " +
		"With -beside another checkout takes turns with this one. It has no row for what it cannot do.",
	variant: "call",
	columns: []column{
		{title: "ns", key: "ns", format: whole},
		{title: "bytes", key: "bytes", format: whole},
		{title: "mallocs", key: "mallocs", format: tenth},
		{title: "x beside", key: "ns", format: cents, base: toLibrary(beside)},
		{title: "bytes x beside", key: "bytes", format: cents, base: toLibrary(beside)},
	},
	cells: func(p plan) []cell {
		var cells []cell
		for _, row := range append(slices.Sorted(maps.Keys(cost.Rows)), cost.ImportRow) {
			cells = append(cells, grid("own-cost", row, []int{1}, []contender{{name: thisCheckout}}, measureOwnCost)...)
			if p.beside != "" {
				cells = append(cells, grid("own-cost", row, []int{1}, []contender{{name: beside}}, measureOwnCost)...)
			}
		}
		return cells
	},
}

// recorded is the commit beside which -bounded compares this checkout.
const recorded = "3c20e96"

// mostOfRecorded is how many times the processor time of a call at the recorded commit a call may need. The figures
// are those of this library when they were written down, plus 15 %, because runs differ.
var mostOfRecorded = map[string]float64{
	"Do":                                     0.90,
	"Extend":                                 1.46,
	"Extend by the watchdog":                 1.89,
	"Lock + Unlock":                          1.35,
	"Lock + Unlock, 1 node":                  1.35,
	"Lock + Unlock, 2 nodes refuse":          1.54,
	"Lock + Unlock, 3 nodes":                 1.44,
	"Lock + Unlock, 9 nodes":                 1.41,
	"Lock + Unlock, fair":                    1.31,
	"Lock + Unlock, fenced":                  1.29,
	"Lock + Unlock, watchdog":                1.31,
	"Lock waits, by the nodes":               1.12,
	"Lock waits, handed over":                1.13,
	"NewMutex with an option, Lock + Unlock": 1.45,
	"NewMutex, Lock + Unlock":                1.45,
	"TryLock, taken":                         1.10,
	"a Mutex, not locked":                    2.21,
	"a held lock":                            1.90,
	"a held lock, fenced":                    1.47,
	"a held lock, watchdog":                  1.37,
	"import of the package":                  0.74,
}

func measureOwnCost(ctx context.Context, l *lab, c cell) (figures, error) {
	checkout := "."
	if c.Library == beside {
		checkout = l.plan.beside
	}
	program, err := l.costProgram(ctx, checkout)
	if err != nil {
		return nil, err
	}
	to := filepath.Join(filepath.Dir(program), "figures.json")
	cmd := exec.CommandContext(ctx, program, "-test.run", "^TestTime$") //nolint:gosec // it has just been built
	cmd.Env = append(os.Environ(), "REDSYNC_COST_ROW="+c.Variant, "REDSYNC_COST_FOR="+l.plan.cell.String(), "REDSYNC_COST_TO="+to)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return nil, err
	}
	var f figures
	return f, json.Unmarshal(text, &f)
}

// costProgram returns the program that measures a checkout. The first call for each checkout builds it.
func (l *lab) costProgram(ctx context.Context, checkout string) (string, error) {
	if program, built := l.costPrograms[checkout]; built {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "own-cost-*")
	if err != nil {
		return "", err
	}
	l.remove = append(l.remove, dir)
	if err := copyCost(dir, checkout); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "own-cost")
	if err := buildCost(ctx, dir, program); err != nil {
		return "", fmt.Errorf("%s: %w", checkout, err)
	}
	l.costPrograms[checkout] = program
	return program, nil
}

// copyCost makes a module in dir that has the rows of this checkout, and the library of another one.
func copyCost(dir, checkout string) error {
	library, err := filepath.Abs(checkout)
	if err != nil {
		return err
	}
	files, err := filepath.Glob("proof/cost/*.go")
	if err == nil && len(files) == 0 {
		err = errors.New("proof/cost is not here: run this from the top of the repository")
	}
	if err != nil {
		return err
	}
	_, noWire := os.Stat(filepath.Join(library, "internal", "wire"))
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of this repository
		if err != nil {
			return err
		}
		if errors.Is(noWire, os.ErrNotExist) {
			// The checkout has the types of a node's connection in pool, as the recorded commit has.
			text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("internal/wire"), []byte("pool")), []byte("wire."), []byte("pool."))
		}
		if name := filepath.Base(file); name != "cost_test.go" { // it looks into the library
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		return err
	}
	others, err := os.ReadFile(filepath.Join(library, "go.sum")) //nolint:gosec // the user's
	if err != nil {
		return err
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	name, versions, _ := strings.Cut(string(module), "\n")
	text := fmt.Sprintf("%s/proof/cost/own\n%s\nrequire %s v0.0.0\nreplace %[3]s => %s\n", name, versions, strings.TrimPrefix(name, "module "), library)
	return errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "go.sum"), slices.Concat(sums, others), 0o600))
}

// inRows matches an error of the compiler in a file of rows that a checkout may not have.
var inRows = regexp.MustCompile(`(?m)^(?:\./)?(rows_\w+\.go):\d+`)

// buildCost builds the program in dir. It leaves out the files of rows that do not compile with the library.
func buildCost(ctx context.Context, dir, program string) error {
	for {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, ".") //nolint:gosec // a folder of ours
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -trimpath")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		failed := inRows.FindAllSubmatch(bytes.TrimSpace(out), -1)
		if len(failed) == 0 {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, match := range failed {
			if err := os.Remove(filepath.Join(dir, string(match[1]))); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
}

// measureAboveBounds takes as many samples again, up to three times, of the calls that are above their bounds: the first
// ones may be those of a machine that was busy.
func (l *lab) measureAboveBounds(ctx context.Context, results []*result, log io.Writer) error {
	for range 3 {
		var above []*result
		for _, b := range boundsOf(results) {
			if b.bounded && b.times > b.most {
				above = append(above, b.result, b.recorded)
			}
		}
		if err := l.sample(ctx, above, log); err != nil {
			return err
		}
	}
	return nil
}

// A bound says how many times the processor time at the recorded commit a call needs, and may need.
type bound struct {
	*result
	recorded          *result
	times, most       float64
	measured, bounded bool
}

func boundsOf(results []*result) (bounds []bound) {
	all := index(results)
	for _, r := range results {
		if r.cell.Scene == ownCostScene.name && r.cell.Library == thisCheckout {
			b := bound{result: r, recorded: all.byID[toLibrary(beside)(r.cell.id)]}
			b.most, b.bounded = mostOfRecorded[r.cell.Variant]
			b.times, b.measured = ratio(r, b.recorded, "ns")
			bounds = append(bounds, b)
		}
	}
	return bounds
}

// boundedCost returns an error for each call that needs more of the processor time of the recorded commit than it may.
func boundedCost(results []*result) error {
	var errs []error
	for _, b := range boundsOf(results) {
		switch {
		case b.measured != b.bounded:
			errs = append(errs, fmt.Errorf("%v: a bound: %t; a row of the recorded commit: %t", b.cell.id, b.bounded, b.measured))
		case b.times > b.most:
			errs = append(errs, fmt.Errorf("%v: %.2f times the time at %s, at most %.2f (CONTRIBUTING.md: When a guard fails)",
				b.cell.id, b.times, recorded, b.most))
		}
	}
	return errors.Join(errs...)
}
