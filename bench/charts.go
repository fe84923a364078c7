package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Size of a chart, and of the legend at its right.
const (
	chartWidth  = 10.6 * vg.Inch
	chartHeight = 4.5 * vg.Inch
	legendWidth = 3.5 * vg.Inch
)

// colors distinguish the libraries in all charts, for color-blind readers as well.
var colors = map[string]color.Color{
	ours:      color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	oursApart: color.RGBA{0xf4, 0xb1, 0x83, 0xff},
	oursFair:  color.RGBA{0x7f, 0x38, 0x00, 0xff},
	defaults:  color.RGBA{0x00, 0x72, 0xb2, 0xff},
	failFast:  color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	onRueidis: color.RGBA{0x00, 0x9e, 0x73, 0xff},
	oneKey:    color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	oneNode:   color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	floor:     color.RGBA{0x55, 0x55, 0x55, 0xff},

	oursTwo:            color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	oursTwoFair:        color.RGBA{0x7f, 0x38, 0x00, 0xff},
	ours + inOrder:     color.RGBA{0xf4, 0xb1, 0x83, 0xff},
	oursFair + inOrder: color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	defaults + inOrder: color.RGBA{0x00, 0x72, 0xb2, 0xff},

	readersHere:  color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	readersApart: color.RGBA{0x00, 0x9e, 0x73, 0xff},
	plainHere:    color.RGBA{0xf4, 0xb1, 0x83, 0xff},
	plainApart:   color.RGBA{0x7f, 0x38, 0x00, 0xff},

	oursPermits:     color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	oursPermitsFair: color.RGBA{0x7f, 0x38, 0x00, 0xff},
	oursAtRandom:    color.RGBA{0xf4, 0xb1, 0x83, 0xff},
	inTurn:          color.RGBA{0x00, 0x72, 0xb2, 0xff},

	fewRounds:      color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	fewRoundsFair:  color.RGBA{0x7f, 0x38, 0x00, 0xff},
	fewRoundsAnew:  color.RGBA{0xf4, 0xb1, 0x83, 0xff},
	manyRounds:     color.RGBA{0x00, 0x9e, 0x73, 0xff},
	manyRoundsAnew: color.RGBA{0xcc, 0x79, 0xa7, 0xff},
}

// drawCharts writes into dir every chart for which results has figures.
func drawCharts(dir string, results []*result) error {
	all := index(results)
	charts := []struct {
		file string
		draw func(resultIndex) *chart
	}{
		{"throughput.svg", throughputChart},
		{"ratio.svg", ratioChart},
		{"network.svg", networkChart},
		{"faults.svg", faultsChart},
		{"contention.svg", contentionChart},
		{"transfers.svg", transfersChart},
		{"readers-one.svg", readersOneChart},
		{"permits-queue.svg", permitsQueueChart},
		{"permits-rounds.svg", permitsRoundsChart},
	}
	var errs []error
	for _, ch := range charts {
		if c := ch.draw(all); !c.empty() {
			errs = append(errs, c.write(filepath.Join(dir, ch.file)))
		}
	}
	return errors.Join(errs...)
}

// A chart is a plot and its legend.
type chart struct {
	plot    *plot.Plot
	values  font.Length    // font size of the values above bars
	upright bool           // the values stand upright, because the bars are narrow
	names   []entry        // the lines of the legend
	labels  []vg.Rectangle // where the values above bars were drawn
	err     error
}

// An entry is one line of the legend.
type entry struct {
	name    string
	symbols []plot.Thumbnailer
}

func newChart(title, x, y string) *chart {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = 8
	p.X.Padding = 2
	for _, style := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		style.Font.Typeface, style.Font.Variant = "Liberation", "Sans"
		style.Font.Size = 11
	}
	p.Title.TextStyle.Font.Size = 13
	return &chart{plot: p, values: 8.5}
}

func (c *chart) empty() bool { return len(c.names) == 0 && c.err == nil }

// logarithmic makes the y axis logarithmic, with a tick at each product of a step and a power of ten.
func (c *chart) logarithmic(low, high float64, name func(float64) string, steps ...float64) {
	c.plot.Y.Scale = plot.LogScale{}
	c.plot.Y.Min, c.plot.Y.Max = low, high
	var ticks plot.ConstantTicks
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, step := range steps {
			if v := power * step; v >= low*0.999 && v <= high*1.001 {
				ticks = append(ticks, plot.Tick{Value: v, Label: name(v)})
			}
		}
	}
	c.plot.Y.Tick.Marker = ticks
}

func (c *chart) addGrid(vertical bool) {
	g := plotter.NewGrid()
	g.Horizontal.Color = color.Gray{0xe0}
	g.Vertical.Color = color.Gray{0xe0}
	if !vertical {
		g.Vertical.Color = nil
	}
	c.plot.Add(g)
}

func (c *chart) write(path string) error {
	if c.err != nil {
		return c.err
	}
	canvas := vgsvg.New(chartWidth, chartHeight)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	c.plot.Draw(draw.Crop(all, 6, -legendWidth, 6, -6))
	c.drawLegend(draw.Crop(all, chartWidth-legendWidth, -6, 6, -0.6*vg.Inch))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	// Without Liberation Sans, a viewer may use Arial or Helvetica: their letters have the same widths.
	text := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return errors.Join(os.WriteFile(path, text, 0o644), os.WriteFile(darkPath(path), dark(text), 0o644))
}

// onDark maps the colors of a chart on a white page to those of the same chart on a dark page. Colors that
// are missing here are readable on both.
var onDark = strings.NewReplacer(
	"<g transform", `<g fill="#E6EDF3" transform`, // text, which has no color of its own
	"#FFFFFF", "#0D1117",
	"#000000", "#E6EDF3",
	"#E0E0E0", "#30363D",
	"#555555", "#A0A0A0",
	"#7F3800", "#B8733A",
)

// dark converts the text of an SVG that write has drawn to the colors for a dark page.
func dark(chart []byte) []byte { return []byte(onDark.Replace(string(chart))) }

// darkPath returns the name of the dark form of a chart.
func darkPath(path string) string {
	return strings.TrimSuffix(path, ".svg") + "-dark.svg"
}

// drawLegend draws the entries of the legend one below the other, from the top of area.
func (c *chart) drawLegend(area draw.Canvas) {
	const line, symbol = 20, 24
	style := c.plot.X.Tick.Label
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	for i, e := range c.names {
		middle := area.Max.Y - vg.Length(i)*line
		at := draw.Canvas{Canvas: area.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: area.Min.X, Y: middle - 5},
			Max: vg.Point{X: area.Min.X + symbol, Y: middle + 5},
		}}
		for _, s := range e.symbols {
			s.Thumbnail(&at)
		}
		area.FillText(style, vg.Point{X: area.Min.X + symbol + 8, Y: middle}, e.name)
	}
}

func throughputChart(all resultIndex) *chart {
	c := newChart("Lock + Unlock of distinct keys, five nodes", "goroutines", "pairs/s")
	c.addGrid(true)
	widths := []float64{1, 16, 128, 1024}
	for _, lib := range slices.Backward(contenders) { // this library is drawn last, on top
		c.addLine(lib, all.byWidth(widths, "rate", func(width int) id {
			return id{Scene: distinctScene.name, Goroutines: width, Library: lib.name}
		}))
	}
	slices.Reverse(c.names)
	c.widths(widths)
	c.logarithmic(1000, 100_000, thousands, 1, 2, 5)
	return c
}

// addLine adds the line of a library. Lines of libraries with one node are dashed.
func (c *chart) addLine(lib contender, points plotter.XYs) {
	if len(points) == 0 {
		return
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		c.err = err
		return
	}
	line.Color, dots.Color = colors[lib.name], colors[lib.name]
	line.Width, dots.Radius, dots.Shape = 1.5, 3, draw.CircleGlyph{}
	if lib.name == ours {
		line.Width, dots.Radius = 3, 4
	}
	if lib.single {
		line.Dashes = []vg.Length{4, 3}
	}
	c.plot.Add(line, dots)
	c.names = append(c.names, entry{lib.name, []plot.Thumbnailer{line, dots}})
}

func ratioChart(all resultIndex) *chart {
	c := newChart("Pairs/s in relation to redsync v4 with its defaults", "goroutines", "times as many")
	c.addGrid(false)
	var groups []group
	for _, width := range []int{1, 16, 128, 1024} {
		groups = append(groups, group{strconv.Itoa(width), func(library string) (float64, bool) {
			at := id{Scene: distinctScene.name, Goroutines: width, Library: library}
			r, base := all.byID[at], all.byID[toLibrary(defaults)(at)]
			if r == nil || base == nil {
				return 0, false
			}
			return ratio(r, base, "rate")
		}})
	}
	c.addBars(groups, []string{defaults, failFast, onRueidis, ours, floor}, 0, tenth)
	c.plot.Y.Min = 0
	return c
}

func networkChart(all resultIndex) *chart {
	c := newChart("The slower of Lock and Unlock on networks, p50, 1 goroutine",
		"delay of the nodes, per direction", "round trips to the third fastest node")
	c.addGrid(false)
	var groups []group
	for _, at := range []struct{ title, scene, variant string }{
		{"all 1 ms", networkScene.name, "1ms"},
		{"all 20 ms", networkScene.name, "20ms"},
		{"1, 2, 3, 8 and 20 ms", staggeredScene.name, ""},
	} {
		groups = append(groups, group{at.title, func(library string) (float64, bool) {
			bar := id{Scene: at.scene, Variant: at.variant, Goroutines: 1, Library: library}
			lock, ok := all.value(bar, "lock_trips")
			unlock, also := all.value(bar, "unlock_trips")
			return max(lock, unlock), ok && also
		}})
	}
	c.addBars(groups, []string{defaults, failFast, ours, floor}, 0, cents)
	c.addLevel(1, "one round trip")
	c.plot.Y.Min = 0
	return c
}

func faultsChart(all resultIndex) *chart {
	c := newChart("p99 of Lock while nodes fail, 1 goroutine", "nodes", "p99 (logarithmic)")
	c.addGrid(false)
	var groups []group
	for _, fl := range faults {
		groups = append(groups, group{fl.name, func(library string) (float64, bool) {
			return all.value(id{Scene: faultsScene.name, Variant: fl.name, Goroutines: 1, Library: library}, "lock_p99")
		}})
	}
	c.addBars(groups, []string{defaults, failFast, ours}, 10, duration)
	c.logarithmic(10, 20e6, duration, 1)
	return c
}

func contentionChart(all resultIndex) *chart {
	c := newChart("p99 of the wait for one contended key, held for 1 ms", "processes x goroutines", "p99 (logarithmic)")
	c.addGrid(false)
	var groups []group
	for _, at := range []struct {
		title, variant string
		goroutines     int
	}{{"1 x 8", "one, 1ms", 8}, {"1 x 32", "one, 1ms", 32}, {"4 x 4", "four, 1ms", 16}} {
		groups = append(groups, group{at.title, func(library string) (float64, bool) {
			return all.value(id{
				Scene: contentionScene.name, Variant: at.variant, Goroutines: at.goroutines, Library: library,
			}, "wait_p99")
		}})
	}
	c.upright = true
	c.addBars(groups, []string{defaults, oneKey, ours, oursApart, oursFair}, 1000, duration)
	c.logarithmic(1000, 5e6, duration, 1)
	return c
}

func transfersChart(all resultIndex) *chart {
	c := newChart(fmt.Sprintf("The wait for two of %d accounts, %d goroutines in %d processes", accounts, transferWidth, contendProcesses),
		"of all transfers", "wait (logarithmic)")
	c.addGrid(false)
	var groups []group
	for _, at := range []struct{ title, key string }{
		{"p50", "wait_p50"}, {"p99", "wait_p99"}, {"the longest", "wait_max"},
	} {
		groups = append(groups, group{at.title, func(library string) (float64, bool) {
			return all.value(id{Scene: transfersScene.name, Goroutines: transferWidth, Library: library}, at.key)
		}})
	}
	c.upright = true
	c.addBars(groups, []string{
		defaults + inOrder, ours + inOrder, oursTwo, oursFair + inOrder, oursTwoFair,
	}, 1000, duration)
	c.logarithmic(1000, 20e6, duration, 1)
	return c
}

// The lines of the chart of readers.
const (
	readersHere  = "readers (WithShared), one process"
	readersApart = "readers, eight processes"
	plainHere    = "plain locks, one process"
	plainApart   = "plain locks WithHandOver(false)"
)

func readersOneChart(all resultIndex) *chart {
	c := newChart("Locks of one name by many goroutines, held for 0 ms", "goroutines", "locks/s (logarithmic)")
	c.addGrid(true)
	widths := []float64{1, 16, 128, 1024}
	for _, line := range []struct{ name, variant, library string }{
		{readersHere, inOne, oursShared},
		{readersApart, inEight, oursShared},
		{plainHere, inOne, ours},
		{plainApart, inOne, oursApart},
	} {
		c.addLine(contender{name: line.name}, all.byWidth(widths, "rate", func(width int) id {
			return id{Scene: readersOneScene.name, Variant: line.variant, Goroutines: width, Library: line.library}
		}))
	}
	c.widths(widths)
	c.logarithmic(1000, 5_000_000, thousands, 1)
	return c
}

// namesInCharts are shorter names of libraries for the legend.
var namesInCharts = map[string]string{
	oursPermits:     "WithPermits(4)",
	oursPermitsFair: "WithPermits(4) WithFair",
	oursAtRandom:    "one of 4 locks at random",
	inTurn:          inTurn,
}

func permitsQueueChart(all resultIndex) *chart {
	c := newChart(fmt.Sprintf("The wait for one of %d permits, held for %v, in %d processes", fewPermits, permitHold, permitProcesses),
		"processes x goroutines", "wait (logarithmic)")
	c.addGrid(false)
	var groups []group
	for _, each := range []int{2, 8} {
		for _, at := range []struct{ title, key string }{
			{"p50", "wait_p50"}, {"p99", "wait_p99"}, {"longest", "wait_max"},
		} {
			groups = append(groups, group{
				fmt.Sprintf("%d x %d, %s", permitProcesses, each, at.title),
				func(library string) (float64, bool) {
					return all.value(id{Scene: permitsQueueScene.name, Goroutines: each * permitProcesses, Library: library}, at.key)
				},
			})
		}
	}
	c.upright = true
	c.addBars(groups, []string{inTurn, oursAtRandom, oursPermits, oursPermitsFair}, 1000, duration)
	for i := range c.names {
		c.names[i].name = namesInCharts[c.names[i].name]
	}
	c.logarithmic(1000, 20e6, duration, 1)
	return c
}

// The lines of the chart of rounds.
const (
	fewRounds      = "WithPermits(4)"
	fewRoundsFair  = fewRounds + " WithFair"
	fewRoundsAnew  = fewRounds + anew
	manyRounds     = "WithPermits(16)"
	manyRoundsAnew = manyRounds + anew
)

func permitsRoundsChart(all resultIndex) *chart {
	c := newChart("Rounds per permit", "clients per permit", "rounds")
	c.addGrid(true)
	for _, line := range []struct {
		name, library string
		permits       int
	}{
		{fewRounds, oursPermits, fewPermits},
		{fewRoundsAnew, oursPermits + anew, fewPermits},
		{fewRoundsFair, oursPermitsFair, fewPermits},
		{manyRounds, oursManyPermits, manyPermits},
		{manyRoundsAnew, oursManyPermits + anew, manyPermits},
	} {
		points := all.byWidth([]float64{2, 4, 6, 8, 16, 24, 32}, "rounds", func(clients int) id {
			return id{
				Scene: permitsRoundsScene.name, Variant: strconv.Itoa(line.permits), Goroutines: clients, Library: line.library,
			}
		})
		for i := range points {
			points[i].X /= float64(line.permits)
		}
		c.addLine(contender{name: line.name}, points)
	}
	c.plot.Y.Min = 0
	return c
}

// byWidth returns a point for each number of goroutines whose cell has a figure.
func (all resultIndex) byWidth(widths []float64, key string, at func(width int) id) (points plotter.XYs) {
	for _, width := range widths {
		if v, ok := all.value(at(int(width)), key); ok {
			points = append(points, plotter.XY{X: width, Y: v})
		}
	}
	return points
}

// widths makes the x axis logarithmic, with a tick at each number of goroutines in list.
func (c *chart) widths(list []float64) {
	c.plot.X.Scale = plot.LogScale{}
	var ticks plot.ConstantTicks
	for _, width := range list {
		ticks = append(ticks, plot.Tick{Value: width, Label: strconv.Itoa(int(width))})
	}
	c.plot.X.Tick.Marker = ticks
	c.plot.X.Min, c.plot.X.Max = list[0], list[len(list)-1]
}

// value returns the median of a figure.
func (all resultIndex) value(at id, key string) (float64, bool) {
	r := all.byID[at]
	if r == nil {
		return 0, false
	}
	return r.median(key)
}

// A group is a place on the x axis with a bar for each library.
type group struct {
	title string
	value func(library string) (float64, bool)
}

// addBars adds groups of bars that stand on base, with their values above them.
func (c *chart) addBars(groups []group, libraries []string, base float64, name func(float64) string) {
	titles := make([]string, len(groups))
	for i, g := range groups {
		titles[i] = g.title
	}
	for at, library := range libraries {
		b := &bars{chart: c, base: base, name: name, color: colors[library]}
		for i, g := range groups {
			if v, ok := g.value(library); ok {
				x := float64(i) + (float64(at)+0.5)/float64(len(libraries))*groupShare - groupShare/2
				b.points = append(b.points, plotter.XY{X: x, Y: v})
				b.width = groupShare / float64(len(libraries))
			}
		}
		if len(b.points) > 0 {
			c.plot.Add(b)
			c.names = append(c.names, entry{library, []plot.Thumbnailer{b}})
		}
	}
	c.plot.NominalX(titles...)
	c.plot.X.Min, c.plot.X.Max = -0.5, float64(len(groups))-0.5
}

// addLevel adds a reference line across all groups. It adds none to a chart without bars, so that
// the chart stays empty.
func (c *chart) addLevel(y float64, name string) {
	if c.empty() {
		return
	}
	line, err := plotter.NewLine(plotter.XYs{{X: c.plot.X.Min, Y: y}, {X: c.plot.X.Max, Y: y}})
	if err != nil {
		c.err = err
		return
	}
	line.Dashes = []vg.Length{4, 3}
	c.plot.Add(line)
	c.names = append(c.names, entry{name, []plot.Thumbnailer{line}})
}

// groupShare is the width that the bars of a group share. Groups are 1 apart on the x axis.
const groupShare = 0.8

// bars draws the bars of one library. Unlike plotter.BarChart it can draw on a logarithmic scale.
type bars struct {
	chart  *chart
	points plotter.XYs
	base   float64
	width  float64 // in units of x
	color  color.Color
	name   func(float64) string
}

func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, at := range b.points {
		left, right := x(at.X-b.width*0.45), x(at.X+b.width*0.45)
		bottom, top := y(b.base), y(at.Y)
		c.FillPolygon(b.color, []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}})
		b.label(c, b.name(at.Y), vg.Point{X: (left + right) / 2, Y: top + 2})
	}
}

// label writes the value of a bar above it.
func (b *bars) label(c draw.Canvas, text string, foot vg.Point) {
	style := b.chart.plot.X.Tick.Label
	style.Font.Size = b.chart.values
	style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
	width, height := style.Width(text), style.Height(text)
	if b.chart.upright {
		style.Rotation = math.Pi / 2
		style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
		width, height = height, width
	}
	c.FillText(style, foot, text)
	b.chart.labels = append(b.chart.labels, vg.Rectangle{
		Min: vg.Point{X: foot.X - width/2, Y: foot.Y},
		Max: vg.Point{X: foot.X + width/2, Y: foot.Y + height},
	})
}

// DataRange makes room for the highest bar and its value.
func (b *bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, at := range b.points {
		ymax = max(ymax, at.Y*1.08)
	}
	return b.points[0].X, b.points[len(b.points)-1].X, b.base, ymax
}

func (b *bars) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(b.color, []vg.Point{
		{X: c.Min.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X, Y: c.Max.Y},
	})
}

func thousands(v float64) string {
	switch {
	case v < 1000:
		return whole(v)
	case v >= 1_000_000:
		return fmt.Sprintf("%g M", v/1_000_000)
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
