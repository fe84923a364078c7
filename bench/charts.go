package main

import (
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	floor:     "#808080",

	oursWatched: "#d55e00",
	oursOne:     "#d55e00",
}

// drawCharts draws the charts of a report into dir. It draws no chart for which the report has no figures.
func drawCharts(dir, text string) error {
	head := reportHead.FindStringSubmatch(text)
	if head == nil {
		return nil
	}
	report, rounds := readTables(text), head[4]
	charts := make(map[string]*chart)
	if report[distinctScene.name] != nil {
		charts["throughput"] = throughputChart(report, rounds)
	}
	if report[faultsScene.name] != nil {
		charts["faults"] = faultsChart(report)
	}
	for _, sc := range curves {
		if report[sc.name] != nil {
			charts[sc.name] = curveChart(sc, report[sc.name], rounds)
		}
	}
	var errs []error
	for name, c := range charts {
		c.source(fmt.Sprintf("Commit %s, %s CPUs, redis-server %s.", head[1], head[2], head[3]))
		errs = append(errs, c.write(filepath.Join(dir, name+".svg")))
	}
	return errors.Join(errs...)
}

// reportHead finds, in the head of a report, the commit, the CPUs, the version of the servers, and how many rounds its
// medians are of.
var reportHead = regexp.MustCompile(`(?s)^` + reportBegins + `(\S+): .*, (\d+) CPUs .*; redis-server (.+?); .*; (\d+) interleaved rounds, `)

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
	c := &chart{height: height + 20} // for source
	c.add(`<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`, chartWidth-1, c.height-1, paper, frame)
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

// source says at the lower edge what was measured.
func (c *chart) source(text string) { c.text(margin, float64(c.height)-12, "start", gray, text) }

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
	const left, right, top, bottom = 62.0, 404.0, 214.0, 444.0
	c := newChart(496, "Pairs of Lock and Unlock per second", "Free names, medians of "+rounds+" rounds, logarithmic axes.",
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
	key := 0
	// The line of failFast would lie on that of defaults. This library is first: its line is the thickest.
	for _, name := range []string{ours, onRueidis, defaults, oursOne, oneKey, oneNode} {
		var at []point
		for _, width := range widths {
			if rate, ok := report.figure(id{Scene: distinctScene.name, Goroutines: int(width), Library: name}, "pairs/s"); ok {
				at = append(at, point{x(width), y(rate)})
			}
		}
		if at != nil {
			c.key(key, 92, name)
			key++
		}
		c.curve(name, at)
	}
	return c
}

// style returns how the line and the dots of a library look.
func style(name string) (line, dot string) {
	switch {
	case name == ours || name == oursWatched:
		return ` stroke-width="3"`, `r="4" fill="` + colors[name] + `"`
	case named(name)[0].single: // rings, which show a dot below them
		return ` stroke-width="1.5" stroke-dasharray="4 3"`, `r="4.5" fill="none" stroke-width="1.5" stroke="` + colors[name] + `"`
	}
	return ` stroke-width="1.5"`, `r="3" fill="` + colors[name] + `"`
}

// key adds an entry to the legend above the plot, which begins at top.
func (c *chart) key(i int, top float64, name string) {
	x, y := float64(margin), top+20*float64(i)
	line, dot := style(name)
	c.line(x, y-4, x+28, y-4, colors[name], line)
	c.dot(x+14, y-4, dot)
	c.text(x+36, y, "start", ink, name)
}

type point struct{ x, y float64 }

// curve draws the line of a library through points.
func (c *chart) curve(name string, through []point) {
	line, dot := style(name)
	for i, at := range through {
		if i > 0 {
			c.line(through[i-1].x, through[i-1].y, at.x, at.y, colors[name], line)
		}
		c.dot(at.x, at.y, dot)
	}
}

// curveChart draws the table of a curve. What grows has a place for each of its values, at equal distances.
func curveChart(sc scene, table [][]string, rounds string) *chart {
	const left, right, first, panel, height = 62.0, 404.0, 72.0, 142.0, 104.0
	library := slices.Index(table[0], "library")
	var places, libraries []string
	for _, row := range table[1:] {
		if !slices.Contains(places, row[0]) {
			places = append(places, row[0])
		}
		if !slices.Contains(libraries, row[library]) {
			libraries = append(libraries, row[library])
		}
	}
	keys := 20 * float64(len(libraries))
	c := newChart(int(first+keys+panel*float64(sc.panels))+30, sc.chart, "Medians of "+rounds+" rounds, logarithmic axes.")
	for i, name := range libraries {
		c.key(i, first, name)
	}
	x := func(i int) float64 { return left + 16 + (right-left-32)*float64(i)/float64(max(len(places)-1, 1)) }
	for p := range sc.panels {
		top := first + keys + panel*float64(p) + 20
		bottom := top + height
		c.text(margin, top-10, "start", ink, table[0][library+1+p])
		var values []float64 // by row; a logarithmic axis has no place for 0
		for _, row := range table[1:] {
			v, _ := strconv.ParseFloat(row[library+1+p], 64)
			values = append(values, v)
		}
		ticks := ticksFor(values)
		y := logScale(ticks[0], ticks[len(ticks)-1], bottom, top)
		for _, v := range ticks {
			c.line(left, y(v), right, y(v), rule, "")
			c.text(left-8, y(v)+4, "end", ink, thousands(v))
		}
		for i, place := range places {
			c.line(x(i), top, x(i), bottom, rule, "")
			if p == sc.panels-1 {
				if v, err := strconv.ParseFloat(place, 64); err == nil && v >= 10_000 {
					place = thousands(v)
				}
				c.text(x(i), bottom+20, "middle", ink, place)
			}
		}
		for _, name := range libraries {
			var at []point
			for i, row := range table[1:] {
				if row[library] == name && values[i] > 0 {
					at = append(at, point{x(slices.Index(places, row[0])), y(values[i])})
				}
			}
			c.curve(name, at)
		}
	}
	c.text((left+right)/2, float64(c.height)-32, "middle", gray, table[0][0])
	return c
}

// ticksFor returns places on a logarithmic axis that has room for the values above 0.
func ticksFor(values []float64) (ticks []float64) {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if len(values) == 0 {
		return []float64{1, 10}
	}
	low, high := slices.Min(values), slices.Max(values)
	steps := []float64{1, 2, 5}
	if high/low > 30 {
		steps = steps[:1]
	}
	for decade := math.Pow(10, math.Floor(math.Log10(low))); len(ticks) < 2 || ticks[len(ticks)-1] < high; decade *= 10 {
		for _, step := range steps {
			v := step * decade
			if v <= low {
				ticks = nil
			}
			if len(ticks) < 2 || ticks[len(ticks)-1] < high {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
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
	switch {
	case v < 1000:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case v < 1e6:
		return fmt.Sprintf("%g k", v/1000)
	}
	return fmt.Sprintf("%g M", v/1e6)
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
