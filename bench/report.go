package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// writeReport prints the machine and one table per scene, in Markdown.
func writeReport(w io.Writer, m machine, p plan, results []result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", m)
	fmt.Fprintf(&b, "%d nodes on loopback, expiry %v; medians of %d interleaved rounds of %v.\n",
		nodes, expiry, p.rounds, p.cell)
	for _, sc := range p.scenes {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", sc.name, sc.about)
		writeTable(&b, rows(sc, results))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var header = []string{
	"goroutines", "library", "pairs/s", "p50 µs", "p99 µs", "allocs/pair", "x " + defaults, "keys left",
}

// rows returns the lines of a scene's table, the header first.
func rows(sc scene, results []result) [][]string {
	table := [][]string{header}
	for _, r := range results {
		if r.scene.name != sc.name {
			continue
		}
		rate := median(r, func(s sample) float64 { return s.rate })
		table = append(table, []string{
			strconv.Itoa(r.width),
			r.contender.name,
			fmt.Sprintf("%.0f", rate),
			micros(median(r, func(s sample) time.Duration { return s.p50 })),
			micros(median(r, func(s sample) time.Duration { return s.p99 })),
			fmt.Sprintf("%.0f", median(r, func(s sample) float64 { return s.allocs })),
			ratio(rate, r.cell, results),
			strconv.FormatInt(r.left(), 10),
		})
	}
	return table
}

func micros(d time.Duration) string {
	return strconv.FormatInt(d.Microseconds(), 10)
}

// ratio relates a rate to that of redsync's defaults in the same cell.
func ratio(rate float64, c cell, results []result) string {
	for _, r := range results {
		if r.scene.name == c.scene.name && r.width == c.width && r.contender.name == defaults {
			if base := median(r, func(s sample) float64 { return s.rate }); base > 0 {
				return fmt.Sprintf("%.2f", rate/base)
			}
		}
	}
	return "-"
}

// writeTable aligns a Markdown table; the second column is text, the rest are
// numbers.
func writeTable(b *strings.Builder, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, field := range row {
			widths[i] = max(widths[i], len([]rune(field)))
		}
	}
	for n, row := range table {
		for i, field := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(field)))
			if i == 1 {
				fmt.Fprintf(b, "| %s%s ", field, pad)
			} else {
				fmt.Fprintf(b, "| %s%s ", pad, field)
			}
		}
		b.WriteString("|\n")
		if n == 0 {
			writeRule(b, widths)
		}
	}
}

func writeRule(b *strings.Builder, widths []int) {
	for i, width := range widths {
		dashes := strings.Repeat("-", width)
		if i == 1 {
			fmt.Fprintf(b, "|:%s-", dashes)
		} else {
			fmt.Fprintf(b, "|-%s:", dashes)
		}
	}
	b.WriteString("|\n")
}
