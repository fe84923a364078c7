package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// writeReport prints the machine and one table per scene, in Markdown.
func writeReport(w io.Writer, m machine, p plan, results []*result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", m)
	fmt.Fprintf(&b, "%d nodes on loopback, expiry %v; %d interleaved rounds, %v per cell, medians.\n",
		nodes, p.expiry, p.rounds, p.cell)
	for _, sc := range p.scenes {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", sc.name, sc.about)
		writeTable(&b, sc, rows(sc, index(results)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// An index finds results by their cell, and keeps their order.
type resultIndex struct {
	list []*result
	byID map[id]*result
}

func index(results []*result) resultIndex {
	byID := make(map[id]*result, len(results))
	for _, r := range results {
		byID[r.cell.id] = r
	}
	return resultIndex{results, byID}
}

// rows returns the lines of a scene's table, the header first.
func rows(sc scene, all resultIndex) [][]string {
	head := []string{"goroutines", "library"}
	if sc.variant != "" {
		head = append([]string{sc.variant}, head...)
	}
	for _, col := range sc.columns {
		head = append(head, col.title)
	}
	table := [][]string{head}
	for _, r := range all.list {
		if r.cell.Scene == sc.name {
			table = append(table, row(sc, r, all))
		}
	}
	return table
}

func row(sc scene, r *result, all resultIndex) []string {
	fields := []string{strconv.Itoa(r.cell.Goroutines), r.cell.Library}
	if sc.variant != "" {
		fields = append([]string{r.cell.Variant}, fields...)
	}
	for _, col := range sc.columns {
		fields = append(fields, col.text(r, all))
	}
	return fields
}

// text returns the field of a cell: a median, or a ratio of medians.
func (col column) text(r *result, all resultIndex) string {
	v, ok := col.value(r, all)
	if !ok {
		return "-"
	}
	return col.format(v)
}

func (col column) value(r *result, all resultIndex) (float64, bool) {
	v, ok := r.median(col.key)
	if !ok || col.base == nil {
		return v, ok
	}
	base := all.byID[col.base(r.cell.id)]
	if base == nil {
		return 0, false
	}
	of, ok := base.median(col.key)
	return v / of, ok && of > 0
}

// writeTable aligns a Markdown table; what stands before the figures is text,
// except the number of goroutines.
func writeTable(b *strings.Builder, sc scene, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, fields := range table {
		for i, field := range fields {
			widths[i] = max(widths[i], len([]rune(field)))
		}
	}
	text := make([]bool, len(widths))
	for i := range len(widths) - len(sc.columns) {
		text[i] = table[0][i] != "goroutines"
	}
	for n, fields := range table {
		for i, field := range fields {
			pad := strings.Repeat(" ", widths[i]-len([]rune(field)))
			if text[i] {
				fmt.Fprintf(b, "| %s%s ", field, pad)
			} else {
				fmt.Fprintf(b, "| %s%s ", pad, field)
			}
		}
		b.WriteString("|\n")
		if n == 0 {
			writeRule(b, widths, text)
		}
	}
}

func writeRule(b *strings.Builder, widths []int, text []bool) {
	for i, width := range widths {
		dashes := strings.Repeat("-", width)
		if text[i] {
			fmt.Fprintf(b, "|:%s-", dashes)
		} else {
			fmt.Fprintf(b, "|-%s:", dashes)
		}
	}
	b.WriteString("|\n")
}

// writeJSON writes the machine, the command line and all samples to a file.
func writeJSON(path string, m machine, p plan, results []*result) error {
	type measured struct {
		id
		Samples []figures `json:"samples"`
	}
	file := struct {
		Machine machine    `json:"machine"`
		Args    []string   `json:"args"`
		Results []measured `json:"results"`
	}{Machine: m, Args: p.args}
	for _, r := range results {
		file.Results = append(file.Results, measured{r.cell.id, r.samples})
	}
	text, err := json.MarshalIndent(file, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
