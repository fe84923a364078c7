package redsync_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file runs the lines of docs/wire.md, in their order, on each of five servers, and compares what the page shows.

// A wireLine is a line that the page tells to type, and what it shows below.
type wireLine struct{ command, shown string }

// wireLines returns the lines of the page.
func wireLines(t *testing.T) (lines []wireLine) {
	t.Helper()
	page := read(t, "../docs/wire.md")
	for _, block := range regexp.MustCompile("(?ms)^```\n(\\$ .*?)^```$").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				lines = append(lines, wireLine{command: strings.TrimSpace(command)})
			} else {
				lines[len(lines)-1].shown += line
			}
		}
	}
	require.Len(t, lines, strings.Count(page, "redis-cli ")) // a redis-cli that nobody runs
	return lines
}

// byHand is the page on five servers.
type byHand struct {
	*testing.T

	servers []*realredis.Server
	lines   []wireLine // that were not run yet
	path    string     // PATH, with a redis-cli that connects to the server of WIRE_HOST and WIRE_PORT
}

func newByHand(t *testing.T) *byHand {
	t.Helper()
	w := &byHand{T: t, servers: realredis.Start(t, 5), lines: wireLines(t)}
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		realredis.Missing(t, realredis.Env, err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' -h \"$WIRE_HOST\" -p \"$WIRE_PORT\" $WIRE_FORM \"$@\"\n", cli)
	noError(t, os.WriteFile(filepath.Join(dir, "redis-cli"), []byte(script), 0o700)) //nolint:gosec // the shell runs it
	w.path = dir + string(os.PathListSeparator) + os.Getenv("PATH")
	return w
}

// take takes the next line of the page, which must have this text.
func (w *byHand) take(text string) wireLine {
	w.Helper()
	require.NotEmpty(w, w.lines)
	line := w.lines[0]
	require.Contains(w, line.command, text)
	w.lines = w.lines[1:]
	return line
}

// answer runs a line as the page says, against one server. Without a pipe, redis-cli writes as to a terminal.
func (w *byHand) answer(l wireLine, s *realredis.Server) string {
	w.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	noError(w, err)
	form := "--no-raw"
	if strings.Contains(l.command, " | ") {
		form = "--raw"
	}
	ctx := limited(w, minute)
	cmd := exec.CommandContext(ctx, "sh", "-c", l.command) //nolint:gosec // a line of the page
	cmd.Env = append(os.Environ(), "PATH="+w.path, "WIRE_HOST="+host, "WIRE_PORT="+port, "WIRE_FORM="+form, "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	require.NoError(w, err, string(out))
	return string(out)
}

// does runs the next line once on each server.
func (w *byHand) does(text string) {
	w.Helper()
	line := w.take(text)
	for _, s := range w.servers {
		assert.Equal(w, shapeOf(line.shown), shapeOf(w.answer(line, s)), line.command)
	}
}

// shows runs the next line, which changes nothing, on each server until it shows what the page does: the answer of a
// quorum ends a Lock, so the other nodes may be later.
func (w *byHand) shows(text string) {
	w.Helper()
	line := w.take(text)
	shape := func(text string) string {
		if strings.Contains(line.command, "PTTL") {
			return ttlShape(text)
		}
		return shapeOf(text)
	}
	for _, s := range w.servers {
		got := w.answer(line, s)
		for end := time.Now().Add(minute); shape(got) != shape(line.shown) && time.Now().Before(end); {
			time.Sleep(10 * ms)
			got = w.answer(line, s)
		}
		require.Equal(w, shape(line.shown), shape(got), line.command)
	}
}

var (
	randomText = regexp.MustCompile(`[A-Z2-7]{26}`)
	manyDigits = regexp.MustCompile(`\d{10,}`)
	integer    = regexp.MustCompile(`^\(integer\) (\d+)\n$`)
)

// shapeOf replaces in an answer what no two runs have in common: the random part of values, times and numbers of
// processes. How long they are remains.
func shapeOf(text string) string {
	text = randomText.ReplaceAllString(text, "<random>")
	return manyDigits.ReplaceAllStringFunc(text, func(d string) string { return fmt.Sprintf("<%d digits>", len(d)) })
}

// ttlShape replaces a number of milliseconds, if a lock of the page can last so long.
func ttlShape(text string) string {
	if found := integer.FindStringSubmatch(text); found != nil {
		if ms, err := strconv.Atoi(found[1]); err == nil && ms > 0 && ms <= 30000 {
			return "a TTL"
		}
	}
	return text
}

// process returns another process. Its locks have the expiry of the page, and are patient.
func (w *byHand) process(options ...redsync.Option) *redsync.Redsync {
	w.Helper()
	rs := closed(w.T, realProcess(w.servers))
	return rs.With(append(options, withExpiry(30*sec), redsync.WithTimeoutFactor(0.4))...)
}

// holds locks orders:17, and waits until all nodes have it.
func (w *byHand) holds(rs *redsync.Redsync) *redsync.Mutex {
	w.Helper()
	m := obtained(w, rs.NewMutex("orders:17"))
	awaitAnswers(w.T, w.servers, 1, "exists", "orders:17")
	return m
}

// frees unlocks m, and waits until no node has it.
func (w *byHand) frees(m *redsync.Mutex) {
	w.Helper()
	confirmed(w, m.Unlock)
	awaitAnswers(w.T, w.servers, 0, "exists", "orders:17")
}

func TestTheLinesOfThePageOnTheWireShowWhatItSays(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	w := newByHand(t)
	w.locksByHand()
	w.looksAtALock()
	w.looksAtReadersAndPermits()
	w.breaksExclusion()
	require.Empty(t, w.lines)
}

// A lock that the page makes excludes ours until the page releases it.
func (w *byHand) locksByHand() {
	w.Helper()
	rs := w.process()
	taken := func() {
		w.Helper()
		isTaken(w, rs.NewMutex("orders:17").TryLock())
	}
	w.does("SET orders:17 0f4b")
	taken()
	status, err := rs.NewMutex("orders:17").Inspect(w.Context())
	noError(w, err)
	require.Len(w, status.Holders, 1)
	assert.Equal(w, "node-redlock or redis-py", status.Holders[0].Library)
	w.does("SET orders:17 8c1e")

	for _, s := range w.servers {
		realredis.Must(w, s, "pexpire", "orders:17", 15000)
	}
	w.does("PEXPIRE")
	for _, s := range w.servers {
		assert.Greater(w, realredis.Must(w, s, "pttl", "orders:17"), int64(15000))
	}

	w.does("8c1e77a0b95d4f0e8a36d2f1c4b7e690")
	taken()
	w.does("DEL")
	w.frees(w.holds(rs))
}

// Our keys look as the page says.
func (w *byHand) looksAtALock() {
	w.Helper()
	holder := obtained(w, w.process(withOwner("billing@host-a")).NewMutex("orders:17", withFencing, withWatchdog))
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	waiter, waited := w.process().NewMutex("orders:17", withFencing, forever), make(chan error)
	go func() { waited <- waiter.LockContext(ctx) }()
	w.shows("--scan")
	w.shows("GET orders:17")
	w.shows("PTTL")
	w.shows(":fence")
	w.shows(":queue")
	cancel()
	errorIs(w, <-waited, context.Canceled)
	w.frees(holder)
}

// What a lock of somebody else sees of readers and permits.
func (w *byHand) looksAtReadersAndPermits() {
	w.Helper()
	for range 2 {
		rs := w.process(withWatchdog)
		reader, permit := rs.NewMutex("report", withShared), rs.NewMutex("pool", twoPermits)
		locked(w, reader)
		locked(w, permit)
	}
	w.shows("GET report")
	w.does("SET report")
	w.shows("MGET")
	w.does("SET pool")
}

// What the page says of each mistake is so.
func (w *byHand) breaksExclusion() {
	w.Helper()
	first, second := w.process(), w.process()
	m := w.holds(first)
	w.does("app:orders:17")
	w.does("-n 1")
	confirmed(w, m.Extend)

	w.does("without NX")
	failsWith(w, m.Extend, redsync.ErrLockLost)
	for _, s := range w.servers {
		realredis.Must(w, s, "del", "orders:17")
	}

	for _, mistake := range []string{"DEL", "FLUSHALL"} {
		m = w.holds(first)
		w.does(mistake)
		next := w.holds(second)
		assert.Positive(w, m.Remaining(), "%s: the first holder still believes", mistake)
		w.frees(next)
		failsWith(w, m.Unlock, redsync.ErrLockAlreadyExpired)
	}
}
