package main

import (
	"context"
	"fmt"
	"strconv"
)

// figures are the result of one measurement of a cell, by the keys of columns. Times are in µs, except
// in the scenes cutoff and extended (ms) and goroutines (s).
type figures map[string]float64

// An id says which cell a figure belongs to.
type id struct {
	Scene      string `json:"scene"`
	Variant    string `json:"variant,omitempty"` // such as "one frozen"; "" if the scene has no variants
	Goroutines int    `json:"goroutines"`
	Library    string `json:"library"`
}

func (i id) String() string {
	s := i.Scene
	if i.Variant != "" {
		s += ", " + i.Variant
	}
	return fmt.Sprintf("%s, goroutines %d, %s", s, i.Goroutines, i.Library)
}

// A measuring measures a cell once.
type measuring = func(ctx context.Context, l *lab, c cell) (figures, error)

// A cell is one line of the report: a contender under a load.
type cell struct {
	id
	contender contender
	// rounds limits the rounds that measure the cell; 0 means no limit.
	rounds  int
	measure measuring
}

// A scene is one kind of load and the table of its figures.
type scene struct {
	name, about string
	// variant is the title of the column of variants; "" means no such column.
	variant string
	columns []column
	cells   func(p plan) []cell
	// apart means that the scene runs only when -scenes names it: its report is a file of its own.
	apart bool
	// chart is the title of a curve's chart, which shows the first columns, one in each of some panels; "" means no curve.
	chart  string
	panels int
}

// A column is one figure in the table of a scene.
type column struct {
	title  string
	key    string
	format func(v float64) string
	// base, if any, makes the column a ratio to the same figure of another cell.
	base func(i id) id
}

var scenes = append([]scene{
	distinctScene, nativeScene, networkScene, staggeredScene, faultsScene, frozenScene, nodeSilentScene, nodeSlowScene,
	contentionScene, wakeupScene, waitersScene, fencingScene,
	namesScene, namesNetworkScene, transfersScene, readersScene, readersOneScene, readersWriterScene,
	permitsScene, permitsQueueScene, permitsRoundsScene, heldScene, extendedScene, cutOffScene, commandsScene, ownCostScene, oneNodeScene, clustersScene,
}, curves...)

// grid returns a cell for every width and contender.
func grid(sc, variant string, widths []int, list []contender,
	measure measuring,
) []cell {
	var cells []cell
	for _, width := range widths {
		for _, c := range list {
			cells = append(cells, cell{
				id:        id{Scene: sc, Variant: variant, Goroutines: width, Library: c.name},
				contender: c, measure: measure,
			})
		}
	}
	return cells
}

func whole(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
func tenth(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
func cents(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// digits formats v as a whole number from 100 on, with two decimals from 0.1 on, and with two
// significant digits below.
func digits(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return whole(v)
	case v >= 0.1:
		return cents(v)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// toLibrary is the base of columns that compare each library with the library name.
func toLibrary(name string) func(id) id {
	return func(i id) id {
		i.Library = name
		return i
	}
}

// toVariant is the base of columns that compare a library in each variant with the same library in one variant.
func toVariant(variant string) func(id) id {
	return func(i id) id {
		i.Variant = variant
		return i
	}
}
