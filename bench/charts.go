package main

import (
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// colors distinguish the libraries in all charts, for color-blind readers as well.
var colors = map[string]string{
	ours:      "#d55e00",
	defaults:  "#0072b2",
	failFast:  "#56b4e9",
	onRueidis: "#009e73",
	oneKey:    "#cc79a7",
	oneNode:   "#e69f00",
}

// drawCharts draws the charts of a report into dir. It draws no chart for which the report has no figures.
func drawCharts(dir, text string) error {
	var errs []error
	report, often := readTables(text), howOften.FindStringSubmatch(text)
	if report[distinctScene.name] != nil && often != nil {
		errs = append(errs, throughputChart(report, often[1]).write(filepath.Join(dir, "throughput.svg")))
	}
	if report[faultsScene.name] != nil && often != nil {
		errs = append(errs, faultsChart(report).write(filepath.Join(dir, "faults.svg")))
	}
	return errors.Join(errs...)
}

// howOften finds, in the head of a report, how many rounds its medians are of.
var howOften = regexp.MustCompile(`; (\d+) interleaved rounds, `)

// The colors of a chart on a light page that are not those of a library.
const (
	paper = "#ffffff"
	frame = "#9ca3af"
	rule  = "#e5e7eb"
	ink   = "#1f2937"
	gray  = "#4b5563"
)

// onDark maps them to those of the same chart on a dark page. The colors of the libraries are readable on both.
var onDark = strings.NewReplacer(paper, "#0d1117", frame, "#6b7280", rule, "#30363d", ink, "#e6edf3", gray, "#9aa4b2")

// dark converts a chart to the colors for a dark page.
func dark(chart string) string { return onDark.Replace(chart) }

// darkPath returns the name of the dark form of a chart.
func darkPath(path string) string { return strings.TrimSuffix(path, ".svg") + "-dark.svg" }

// Sizes of charts, in pixels. A phone shows a chart a fifth smaller. The space around texts is for fonts whose letters are
// wide.
const (
	chartWidth = 420
	margin     = 16
	small      = 13 // font size
)

// A chart is an SVG that is being drawn.
type chart struct {
	strings.Builder
	height int
}

func newChart(height int, title string, about ...string) *chart {
	c := &chart{height: height}
	c.add(`<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`, chartWidth-1, height-1, paper, frame)
	c.add(`<text x="%d" y="28" font-size="15" font-weight="bold" fill="%s" text-anchor="start">%s</text>`, margin, ink, title)
	for i, line := range about {
		c.text(margin, 48+18*float64(i), "start", gray, line)
	}
	return c
}

// add adds an element.
func (c *chart) add(format string, args ...any) { fmt.Fprintf(c, "  "+format+"\n", args...) }

func (c *chart) text(x, y float64, anchor, color, text string) {
	c.add(`<text x="%.1f" y="%.1f" font-size="%d" fill="%s" text-anchor="%s">%s</text>`, x, y, small, color, anchor,
		html.EscapeString(text))
}

func (c *chart) line(x1, y1, x2, y2 float64, color, more string) {
	c.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>`, x1, y1, x2, y2, color, more)
}

func (c *chart) dot(x, y float64, look string) { c.add(`<circle cx="%.1f" cy="%.1f" %s/>`, x, y, look) }

// write writes the light and the dark form.
func (c *chart) write(path string) error {
	text := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" role="img">`,
		chartWidth, c.height, chartWidth, c.height) + "\n" + c.String() + "</svg>\n"
	return errors.Join(os.WriteFile(path, []byte(text), 0o644), os.WriteFile(darkPath(path), []byte(dark(text)), 0o644))
}

// logScale returns the place of a value on a logarithmic axis on which low is at from and high is at to.
func logScale(low, high, from, to float64) func(float64) float64 {
	return func(v float64) float64 { return from + (to-from)*math.Log(v/low)/math.Log(high/low) }
}

func throughputChart(report tables, rounds string) *chart {
	const left, right, top, bottom = 62.0, 404.0, 194.0, 424.0
	c := newChart(476, "Pairs of Lock and Unlock per second", "Free names, medians of "+rounds+" rounds, logarithmic axes.",
		"Dashes and rings: one node only. Higher is better.")
	widths := []float64{1, 16, 128, 1024}
	x := logScale(widths[0], widths[len(widths)-1], left+16, right-16)
	y := logScale(1000, 100_000, bottom, top)
	for _, rate := range []float64{1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000} {
		c.line(left, y(rate), right, y(rate), rule, "")
		c.text(left-8, y(rate)+4, "end", ink, thousands(rate))
	}
	for _, width := range widths {
		c.line(x(width), top, x(width), bottom, rule, "")
		c.text(x(width), bottom+20, "middle", ink, whole(width))
	}
	c.text((left+right)/2, bottom+40, "middle", gray, "goroutines")
	libraries := []string{ours, onRueidis, defaults, oneKey, oneNode} // the line of failFast would lie on that of defaults
	for i, name := range libraries {                                  // this library first: its line is the thickest
		c.key(i, name)
		c.curve(report, name, widths, x, y)
	}
	return c
}

// style returns how the line and the dots of a library look.
func style(name string) (line, dot string) {
	switch {
	case name == ours:
		return ` stroke-width="3"`, `r="4" fill="` + colors[name] + `"`
	case named(name)[0].single: // rings, which show a dot below them
		return ` stroke-width="1.5" stroke-dasharray="4 3"`, `r="4.5" fill="none" stroke-width="1.5" stroke="` + colors[name] + `"`
	}
	return ` stroke-width="1.5"`, `r="3" fill="` + colors[name] + `"`
}

// key adds an entry to the legend above the plot.
func (c *chart) key(i int, name string) {
	x, y := float64(margin), 92+20*float64(i)
	line, dot := style(name)
	c.line(x, y-4, x+28, y-4, colors[name], line)
	c.dot(x+14, y-4, dot)
	c.text(x+36, y, "start", ink, name)
}

func (c *chart) curve(report tables, name string, widths []float64, x, y func(float64) float64) {
	line, dot := style(name)
	var before []float64
	for _, width := range widths {
		rate, ok := report.figure(id{Scene: distinctScene.name, Goroutines: int(width), Library: name}, "pairs/s")
		if !ok {
			continue
		}
		if before != nil {
			c.line(before[0], before[1], x(width), y(rate), colors[name], line)
		}
		c.dot(x(width), y(rate), dot)
		before = []float64{x(width), y(rate)}
	}
}

// faultsChart has a row for each library under each fault, with a dot. It has no bars, because the length of a bar
// means nothing on a logarithmic axis.
func faultsChart(report tables) *chart {
	const left, right, top, row = 30.0, 390.0, 104.0, 36.0
	libraries := []string{ours, failFast, defaults}
	height := top + float64(len(faults))*(26+row*float64(len(libraries)))
	c := newChart(int(height)+16, "Lock when nodes fail: 99th percentile", "Five nodes, one goroutine. Left is better. From line to",
		"line ten times as long. Behind it: of how many Locks.")
	x := logScale(100, 1e7, left, right)
	for tick := 100.0; tick <= 1e7; tick *= 10 {
		c.line(x(tick), top-16, x(tick), height-20, rule, "")
		c.text(x(tick), height, "middle", ink, duration(tick))
	}
	y := top
	for _, fl := range faults {
		c.add(`<text x="%d" y="%.1f" font-size="%d" font-weight="bold" fill="%s" text-anchor="start">%s</text>`, margin, y, small, ink, fl.name)
		for _, name := range libraries {
			y += row
			at := id{Scene: faultsScene.name, Variant: fl.name, Goroutines: 1, Library: name}
			p99, ok := report.figure(at, "Lock p99 µs")
			if !ok {
				continue
			}
			pairs, _ := report.figure(at, "pairs")
			c.add(`<g stroke="%s" stroke-width="5" paint-order="stroke">`, paper) // keeps the grid off the text
			c.text(margin, y-16, "start", ink, name+": "+duration(p99)+", of "+whole(pairs))
			c.add(`</g>`)
			c.line(left, y-4, right, y-4, rule, "")
			c.dot(x(p99), y-4, `r="5" fill="`+colors[name]+`"`)
		}
		y += 26
	}
	return c
}

func thousands(v float64) string {
	if v < 1000 {
		return whole(v)
	}
	return fmt.Sprintf("%g k", v/1000)
}

// duration formats us, a duration in µs, with a unit: with at most two digits below 10, and as a whole
// number from 10 on.
func duration(us float64) string {
	for _, unit := range []struct {
		us   float64
		name string
	}{{1e6, "s"}, {1e3, "ms"}, {1, "µs"}} {
		if us >= 0.995*unit.us {
			v := us / unit.us
			if v < 9.95 {
				return strconv.FormatFloat(v, 'g', 2, 64) + " " + unit.name
			}
			return whole(v) + " " + unit.name
		}
	}
	return "0"
}
