package main

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file writes the report as an HTML page with a timeline.

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Sizes of the timeline, in pixels.
const (
	leftWidth   = 140 // for the names of rows
	secondWidth = 60
	rowHeight   = 22
	barHeight   = 14
)

// A row is the timeline of a lock, a node or a process.
type row struct {
	Label string
	Y     int
	Bars  []bar
}

// A bar is a period on the timeline.
type bar struct {
	X, W  float64
	Color template.CSS
	Title string
}

// A tick marks a second on the timeline.
type tick struct {
	X     float64
	Label string
}

type page struct {
	account
	About         string
	Outcome       string
	Width, Height int
	Left, Bar     int
	Rows          []row
	Ticks         []tick
	Marks         []bar // violations
	Stories       []story
}

// A story is a violation in words.
type story struct {
	Title string
	Lines []string
}

func (r *result) writePage(w io.Writer) error { return pageTemplate.Execute(w, r.page()) }

func (r *result) page() page {
	p := page{account: r.account(), About: r.Scene.about, Outcome: "PASS", Left: leftWidth, Bar: barHeight}
	if p.Failed != "" {
		p.Outcome = "FAILED: " + p.Failed
	}
	p.Rows = append(r.lockRows(), r.faultRows()...)
	for i := range p.Rows {
		p.Rows[i].Y = (i + 1) * rowHeight
	}
	end := r.To
	for _, t := range r.Terms {
		end = max(end, t.To)
	}
	p.Width, p.Height = int(at(end))+secondWidth, (len(p.Rows)+2)*rowHeight
	for s := time.Duration(0); s <= end; s += time.Second {
		p.Ticks = append(p.Ticks, tick{at(s), fmt.Sprintf("%d s", s/time.Second)})
	}
	for _, v := range r.Violations {
		p.Marks = append(p.Marks, bar{X: at(v.At), Title: v.String()})
	}
	for i, v := range r.Violations {
		if i == maxShown {
			break
		}
		s := story{Title: v.String()}
		for _, e := range r.around(v) {
			s.Lines = append(s.Lines, describe(e))
		}
		p.Stories = append(p.Stories, s)
	}
	return p
}

// at returns the X of the time t on the timeline, in pixels.
func at(t time.Duration) float64 { return leftWidth + t.Seconds()*secondWidth }

// lockRows returns a row for each lock, with its holds.
func (r *result) lockRows() (rows []row) {
	for _, l := range allNames() {
		one := row{Label: l.name}
		for _, t := range r.Terms {
			if !t.Of(l.name) {
				continue
			}
			title := fmt.Sprintf("%v, %v", t, t.To-t.From)
			if t.Token != 0 {
				title += fmt.Sprintf(", token %d", t.Token)
			}
			if t.Lost != 0 {
				title += fmt.Sprintf(", told at %v that it is lost", t.Lost)
			}
			one.Bars = append(one.Bars, newBar(t.From, t.To, color(t.Client), title))
		}
		rows = append(rows, one)
	}
	return rows
}

// faultRows returns a row for each node and process, with the faults.
func (r *result) faultRows() (rows []row) {
	for i := range r.Scene.nodeCount() {
		rows = append(rows, row{Label: nodeRow(i)})
	}
	for i := range processCount {
		rows = append(rows, row{Label: processRow(i + 1)})
	}
	for i := range rows {
		open := map[string]time.Duration{}
		for _, e := range r.Events {
			switch {
			case e.Kind != history.Fault || e.Where != rows[i].Label:
			case !e.Ends:
				open[e.What] = e.At
			default:
				kind, _, _ := strings.Cut(e.What, ":")
				rows[i].Bars = append(rows[i].Bars, newBar(open[e.What], e.At, color(strings.Fields(kind)[0]), e.What))
			}
		}
		slices.SortStableFunc(rows[i].Bars, func(a, b bar) int { return int(b.W - a.W) }) // short ones on top
	}
	return rows
}

// leastWidth is the least width of a bar, in pixels, so that a fault without duration is visible.
const leastWidth = 1.5

func newBar(from, to time.Duration, c template.CSS, title string) bar {
	return bar{X: at(from), W: max(at(to)-at(from), leastWidth), Color: c, Title: title}
}

// color returns a color for a text. Equal texts have equal colors.
func color(text string) template.CSS {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	sum := h.Sum32()
	return template.CSS(fmt.Sprintf("hsl(%d, %d%%, %d%%)", sum%360, 55+sum>>10%30, 42+sum>>20%18))
}
