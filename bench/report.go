package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

const reportBegins = "Measured at commit "

// reportOf returns what was measured, and one table per scene, in Markdown.
func reportOf(m machine, p plan, results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s: go run ./bench%s\n\n", reportBegins, m.Commit, withSpaces(withoutFiles(p.args)))
	fmt.Fprintf(&b, "%s\n\n", m)
	fmt.Fprintf(&b, "%d nodes on loopback, expiry %v; %d interleaved rounds, %v per cell, medians.\n",
		nodes, p.expiry, p.rounds, p.cell)
	for _, sc := range p.scenes {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", sc.name, sc.about)
		writeTable(&b, sc, rows(sc, index(results)))
	}
	return b.String()
}

// withSpaces returns the arguments as they follow a command.
func withSpaces(args []string) (text string) {
	for _, arg := range args {
		text += " " + arg
	}
	return text
}

// A resultIndex finds results by their cell, and keeps their order.
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

// text returns the field of r in this column: the median of a figure, or of its ratio to the base.
func (col column) text(r *result, all resultIndex) string {
	v, ok := col.value(r, all)
	if !ok {
		return "-"
	}
	return col.format(v)
}

func (col column) value(r *result, all resultIndex) (float64, bool) {
	if col.base == nil {
		return r.median(col.key)
	}
	base := all.byID[col.base(r.cell.id)]
	if base == nil {
		return 0, false
	}
	return ratio(r, base, col.key)
}

// ratio divides, in each round, the figure of r by the figure of base, and returns the median of these ratios.
// Both values come from one round, so a slowdown of the machine affects both. Rounds that lack one of
// them do not count.
func ratio(r, base *result, key string) (float64, bool) {
	var ratios []float64
	for i := range min(len(r.samples), len(base.samples)) {
		v, ok := r.samples[i][key]
		of, also := base.samples[i][key]
		if ok && also && of > 0 {
			ratios = append(ratios, v/of)
		}
	}
	return median(ratios)
}

// writeTable writes table as Markdown with aligned columns: text to the left, numbers to the right.
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

// A record is the content of the -json file: the machine, the command line and all samples.
type record struct {
	Machine machine    `json:"machine"`
	Args    []string   `json:"args"`
	Results []measured `json:"results"`
}

type measured struct {
	id
	Samples []figures `json:"samples"`
}

// writeJSON writes a record to a file.
func writeJSON(path string, m machine, p plan, results []*result) error {
	file := record{Machine: m, Args: p.args}
	for _, r := range results {
		file.Results = append(file.Results, measured{r.cell.id, r.samples})
	}
	text, err := json.MarshalIndent(file, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// readReport returns the report of a record, or the report that the file holds.
func readReport(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", cli.Misusef("-from %s: %w", path, err)
	}
	if strings.HasPrefix(string(text), reportBegins) {
		return string(text), nil
	}
	var file record
	if err := json.Unmarshal(text, &file); err != nil {
		return "", cli.Misusef("-from %s: neither a report nor the file of -json: %w", path, err)
	}
	p, err := parsePlan(withoutFiles(file.Args))
	if err != nil {
		return "", cli.Misusef("-from %s: its command line: %w", path, err)
	}
	var results []*result
	for _, m := range file.Results {
		results = append(results, &result{cell: cell{id: m.id}, samples: m.Samples})
	}
	return reportOf(file.Machine, p, results), nil
}

// withoutFiles returns a command line without the flags -json, -charts and -page.
func withoutFiles(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		switch {
		case name != "json" && name != "charts" && name != "page":
			rest = append(rest, args[i])
		case !joined:
			i++ // the file is the next argument
		}
	}
	return rest
}
