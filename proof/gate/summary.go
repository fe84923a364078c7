package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	slowest = 10  // tests that are shown
	tooMuch = 2   // times the recorded processor seconds
	slack   = 2.0 // seconds beyond that: what takes less than that differs from run to run
)

// notes are files of seconds and names, one line each.
type notes struct{ dir string }

// A note is a line of such a file.
type note struct {
	seconds float64
	name    string
}

// add appends a line to a file. Test binaries run at once, so each line is one write.
func (n notes) add(file string, seconds float64, name string) {
	f, err := os.OpenFile(filepath.Join(n.dir, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the gate names it
	if err == nil {
		_, err = fmt.Fprintf(f, "%.1f %s\n", seconds, name)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
	}
}

// read reads the lines of a file that begin with seconds.
func read(file string) (list []note, err error) {
	f, err := os.Open(file) //nolint:gosec // the gate names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, name, _ := strings.Cut(lines.Text(), " ")
		if seconds, err := strconv.ParseFloat(text, 64); err == nil {
			list = append(list, note{seconds, name})
		}
	}
	return list, lines.Err()
}

// sums adds the seconds of each name up.
func sums(list []note) map[string]float64 {
	sum := map[string]float64{}
	for _, n := range list {
		sum[n.name] += n.seconds
	}
	return sum
}

// summary tells where the time went. It returns an error if a package needs too much processor time.
func summary(kept notes, recorded string, record bool, out io.Writer) error {
	steps, err := read(filepath.Join(kept.dir, "steps"))
	if err != nil {
		return err
	}
	for _, s := range steps {
		_, _ = fmt.Fprintf(out, "%5.0f s  %s\n", s.seconds, s.name)
	}
	tests, err := read(filepath.Join(kept.dir, "tests"))
	if err != nil {
		return err
	}
	slices.SortStableFunc(tests, func(a, b note) int { return int(1000 * (b.seconds - a.seconds)) })
	_, _ = fmt.Fprintf(out, "the slowest tests:\n")
	for _, t := range tests[:min(slowest, len(tests))] {
		_, _ = fmt.Fprintf(out, "%5.1f s  %s\n", t.seconds, t.name)
	}
	late, err := read(filepath.Join(kept.dir, "late"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, t := range late {
		_, _ = fmt.Fprintf(out, "FLAKED, to be mended: %s failed once, and then passed alone\n", t.name)
	}
	list, err := read(filepath.Join(kept.dir, "packages"))
	if err != nil {
		return err
	}
	now := sums(list)
	if record {
		return write(recorded, now)
	}
	before, err := read(recorded)
	if err != nil {
		return err
	}
	if len(before) == 0 {
		_, _ = fmt.Fprintf(out, "processor seconds of all tests: %.0f; none are recorded\n", total(now))
		return nil
	}
	wrong, pace := judge(now, sums(before))
	_, _ = fmt.Fprintf(out, "processor seconds of all tests: %.0f, %.2f times the recorded ones in the median\n", total(now), pace)
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// judge returns which packages need more than twice their recorded processor seconds, and how many times the recorded
// seconds the median package needs.
//
// A slower or busier machine needs more processor time for everything. So the recorded seconds are multiplied by that
// median first. Half of the packages would have to become slower at once to move it; a loop for calibration would have
// to resemble the tests in how they use memory, caches and other processes.
func judge(now, before map[string]float64) (wrong []string, pace float64) {
	var paces []float64
	for name, seconds := range before {
		if seconds >= 1 && now[name] > 0 {
			paces = append(paces, now[name]/seconds)
		}
	}
	pace = 1
	if slices.Sort(paces); len(paces) > 0 {
		pace = paces[len(paces)/2]
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if may := tooMuch * pace * before[name]; now[name] > may+slack*max(pace, 1) {
			wrong = append(wrong, fmt.Sprintf("the tests of %s need %.1f s of processor time; %.1f s are recorded, here %.1f s (.ci/seconds.txt)",
				name, now[name], before[name], pace*before[name]))
		}
	}
	return wrong, pace
}

func total(of map[string]float64) (sum float64) {
	for _, seconds := range of {
		sum += seconds
	}
	return sum
}

// write records seconds.
func write(file string, seconds map[string]float64) error {
	var b strings.Builder
	b.WriteString(`The processor seconds of the tests of each package in .ci/run. The gate fails if a package needs more than twice as much,
compared with the others (proof/gate). To rewrite them: REDSYNC_GATE_RECORD=1 .ci/run

`)
	for _, name := range slices.Sorted(maps.Keys(seconds)) {
		fmt.Fprintf(&b, "%.1f %s\n", seconds[name], name)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644) //nolint:gosec // it is in the repository
}
