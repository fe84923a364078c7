package redsync_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows which options and methods go together with which kind of lock, and that the page for users says the
// same. The expectations are those of modeRows.

// modesPage has the table for users.
const modesPage = "../docs/reference.md"

// A lockKind is a kind of lock. It has a column in the table.
type lockKind struct {
	column         string
	call           string   // how errors name it
	given          []string // the names, as a caller gives them
	names, keys    []string
	shared, permit bool
	mode           observe.Mode
}

// on returns a lock of the kind on these names.
func (k lockKind) on(rs *redsync.Redsync, names []string, options ...redsync.Option) *redsync.Mutex {
	if len(names) > 1 {
		return rs.NewMultiMutex(names, options...)
	}
	return rs.NewMutex(names[0], append(k.options(), options...)...)
}

// lock returns a lock of the kind.
func (k lockKind) lock(rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	return k.on(rs, k.given, options...)
}

// rival returns a lock that cannot be held together with one of the kind.
func (k lockKind) rival(rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	if k.shared {
		return rs.NewMutex("a", options...)
	}
	return k.lock(rs, options...)
}

var oneName, threeNames = []string{"a"}, []string{"a", "b", "c"}

// lockKinds are in the order of the cells of a row.
var lockKinds = []lockKind{
	{"plain lock", "NewMutex", oneName, oneName, oneName, false, false, observe.Plain},
	{"several names", "NewMultiMutex", []string{"c", "a", "b"}, threeNames, threeNames, false, false, observe.Names},
	{"shared", "WithShared", oneName, oneName, oneName, true, false, observe.Shared},
	{"permits", "WithPermits", oneName, oneName, []string{permitKey}, false, true, observe.Permits},
}

// onePermit makes a permit that nobody else can have. It has the key permitKey.
var onePermit = withPermits(1)

const permitKey = "{a}:slot:0"

// options returns the options that make a lock of the kind with Redsync.Do.
func (k lockKind) options() opts {
	switch {
	case k.shared:
		return opts{withShared}
	case k.permit:
		return opts{onePermit}
	}
	return nil
}

// What a cell of the table begins with.
const (
	works = "yes"
	fails = "error"     // every operation fails, and names both sides
	idle  = "no effect" // accepted, but does nothing; "no": there is no such call
)

// A modeRow is a row of the table: an option, a method, or what a Redsync is made with.
type modeRow struct {
	name   string
	cells  []string                                    // one for each kind
	option func(over redsync.Sequencer) redsync.Option // over is the Sequencer of an ended hold of the lock; nil for a method
	use    func(used)
}

// A used lock is one whose methods are called while it is held.
type used struct {
	user
	kind lockKind
	m    *redsync.Mutex
}

// row returns a row. One cell stands for those of all kinds.
func row(name, cells string, option func(redsync.Sequencer) redsync.Option, use func(used)) modeRow {
	words := strings.Split(cells, ", ")
	return modeRow{name, slices.Repeat(words, len(lockKinds)/len(words)), option, use}
}

// always returns an option that is the same for each lock.
func always(o redsync.Option) func(redsync.Sequencer) redsync.Option {
	return func(redsync.Sequencer) redsync.Option { return o }
}

// opt returns the row of an option that works with each kind of lock, and method that of a method.
func opt(name string, o redsync.Option) modeRow { return row(name, works, always(o), nil) }

func method(name string, use func(used)) modeRow { return row(name, works, nil, use) }

// modeRows is the table. A new option, and a new method of Mutex, needs a row here and a row of the page.
var modeRows = []modeRow{
	opt("WithExpiry", withExpiry(4*sec)),
	opt("WithTries", withTries(2)),
	opt("WithWait", redsync.WithWait(sec)),
	opt("WithRetryDelay", withRetryDelay(ms)),
	opt("WithRetryDelayFunc", redsync.WithRetryDelayFunc(func(int) time.Duration { return 0 })),
	opt("WithDriftFactor", redsync.WithDriftFactor(0.1)),
	opt("WithTimeoutFactor", redsync.WithTimeoutFactor(0.1)),
	opt("WithNodeTimeout", withNodeTimeout(100*ms)),
	opt("WithFailFast", hearsAll),
	row("WithShufflePools", idle, always(redsync.WithShufflePools(true)), nil),
	opt("WithGenValueFunc", withGenValueFunc(freshValue)),
	opt("WithOwner", withOwner("worker-7@host")),
	opt("WithSetNXOnExtend", withSetNXOnExtend),
	opt("WithWatchdog", withWatchdog),
	opt("WithMaxHold", withMaxHold(minute)),
	opt("WithLockDelay", withLockDelay(sec)),
	row("WithMinHold", "yes, yes, error, yes", always(withMinHold(5*ms)), nil),
	opt("WithFair", withFair),
	opt("WithPriority", redsync.WithPriority(7)),
	row("WithFencing", "yes, yes, yes, error", always(withFencing), nil),
	row("WithHandOver", "yes, no effect, yes, yes", always(redsync.WithHandOver(true)), nil),
	opt("WithHooks", recordsTo(&redsynctest.Recorder{})),
	opt("WithLogger", redsync.WithLogger(slog.New(slog.DiscardHandler))),
	row("WithNesting", "yes, yes, yes, no effect", always(redsync.WithNesting(2)), func(u used) {
		u.unlock(u.m)
		outer := u.kind.lock(u.Redsync, redsync.WithNesting(2))
		noError(u, outer.Do(u.Context(), func(ctx context.Context) error {
			return u.kind.lock(u.Redsync).Do(ctx, func(ctx context.Context) error {
				assert.Same(u, outer, redsync.FromContext(ctx))
				errorIs(u, u.kind.lock(u.Redsync).Do(ctx, nothing), redsync.ErrNested)
				return nil
			})
		}))
	}),
	row("WithShared", "yes, error, yes, error", always(withShared), nil),
	row("WithPermits", "yes, error, error, yes", always(onePermit), nil),
	row("WithWeight", "error, error, error, yes", always(redsync.WithWeight(1)), nil),
	row("WithValue", "yes, error, error, error", func(over redsync.Sequencer) redsync.Option { return withValue(over.Value) }, nil),
	row("WithSequencer", works, withSequencer, nil),

	method("Lock", func(u used) { isTaken(u, u.kind.rival(u.Redsync, once).Lock()) }),
	method("TryLock", func(u used) { isTaken(u, u.kind.rival(u.Redsync).TryLock()) }),
	method("Detach", func(u used) {
		u.detaches(u.m)
		isTaken(u, u.kind.rival(u.Redsync).TryLock())
		time.Sleep(guard) // nobody adopts it
	}),
	row("Downgrade", "yes, error, error, error", nil, func(u used) { u.downgrades(u.m) }),
	method("Sequencer", func(u used) {
		assert.Equal(u, u.m.Sequencer(), must(redsync.ParseSequencer(u.m.Sequencer().String())))
	}),
	method("Until", func(u used) { assert.NotZero(u, u.m.Until()) }),
	method("Remaining", func(u used) { assert.Positive(u, u.m.Remaining()) }),
	method("Value", func(u used) { assert.NotEmpty(u, u.m.Value()) }),
	row("Fence", "yes, yes, yes, no effect", nil, func(u used) {
		assert.Zero(u, u.m.Fence())
		u.unlock(u.m)
		fenced := locked(u, u.kind.lock(u.Redsync, withFencing))
		assert.Positive(u, fenced.Fence())
		u.unlock(fenced)
	}),
	method("Name", func(u used) { assert.Equal(u, strings.Join(u.kind.names, ", "), u.m.Name()) }),
	method("Names", func(u used) { assert.Equal(u, u.kind.names, u.m.Names()) }),
	method("Redsync.Current", func(u used) { noError(u, u.current(u.Redsync, u.m.Sequencer())) }),
	method("Do", func(u used) {
		u.unlock(u.m)
		noError(u, u.m.Do(u.Context(), nothing))
	}),
	method("TryDo", func(u used) {
		u.unlock(u.m)
		noError(u, u.ran(u.m.TryDo(u.Context(), nothing)))
	}),
	method("FromContext", func(u used) {
		u.unlock(u.m)
		noError(u, u.Do(u.Context(), "a", func(ctx context.Context) error {
			assert.Equal(u, "a", redsync.FromContext(ctx).Name())
			return nil
		}))
	}),
	row("Redsync.Do", "yes, no, yes, yes", nil, func(u used) {
		u.unlock(u.m)
		noError(u, u.Do(u.Context(), "a", nothing, u.kind.options()...))
	}),
	row("Redsync.TryDo", "yes, no, yes, yes", nil, func(u used) {
		u.unlock(u.m)
		noError(u, u.ran(u.TryDo(u.Context(), "a", nothing, u.kind.options()...)))
	}),
	row("Redsync.Lead", "yes, no, error, error", nil, func(u used) {
		u.unlock(u.m)
		noError(u, u.Lead(u.Context(), "a", nothing))
	}),

	// Tests that go through lockKinds use these.
	method("Extend", nil), method("Valid", nil), method("Unlock", nil), method("Lost", nil), method("Err", nil),
	method("Context", nil), method("ForceUnlock", nil), method("Inspect", nil), method("Watch", nil),

	// See environments.
	method("WithPrefix", nil), method("NewJoint", nil), method("OpenJoint", nil), method("pool.WithRestartGuard", nil),
}

// optionsApart returns the pairs of options that no lock of a kind can have. In these tests, WithSequencer adopts a
// lock of that kind without further options.
func optionsApart(kind lockKind) [][2]string {
	apart := [][2]string{
		{"WithValue", "WithSequencer"},
		{"WithShared", "WithValue"},
		{"WithPermits", "WithShared"},
		{"WithPermits", "WithFencing"},
		{"WithPermits", "WithValue"},
		{"WithMinHold", "WithShared"},
		{"WithMinHold", "WithValue"},
		{"WithMinHold", "WithSequencer"},
		{"WithOwner", "WithValue"},
		{"WithOwner", "WithGenValueFunc"},
	}
	if !kind.shared {
		apart = append(apart, [2]string{"WithShared", "WithSequencer"})
	}
	if !kind.permit {
		apart = append(apart, [2]string{"WithPermits", "WithSequencer"})
	}
	return apart
}

// freshValue is a function for WithGenValueFunc.
func freshValue() (string, error) { return rand.Text(), nil }

// confirms checks that an operation has returned true and no error.
func (u user) confirms(ok bool, err error) {
	u.Helper()
	noError(u, err)
	require.True(u, ok)
}

// goesWith reports whether a lock of the kind can have an option.
func (k lockKind) goesWith(option string) bool {
	row := slices.IndexFunc(modeRows, func(r modeRow) bool { return r.name == option })
	kind := slices.IndexFunc(lockKinds, func(other lockKind) bool { return other.column == k.column })
	return modeRows[row].cells[kind] != fails
}

// optionRows returns the rows of modeRows that are options.
func optionRows() (rows []modeRow) {
	for _, r := range modeRows {
		if r.option != nil {
			rows = append(rows, r)
		}
	}
	return rows
}

// sides returns the pairs of these options that exclude each other on a lock of kind number k. An option that excludes
// the kind is paired with the kind.
func sides(k int, rows ...modeRow) (excluded [][2]string) {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
		if r.cells[k] == fails && r.name != "WithWeight" {
			excluded = append(excluded, [2]string{r.name, lockKinds[k].call})
		}
	}
	if slices.Contains(names, "WithWeight") { // it excludes nothing, but needs two others
		if !lockKinds[k].permit && !slices.Contains(names, "WithPermits") {
			excluded = append(excluded, [2]string{"WithWeight", "WithPermits"})
		} else if !slices.Contains(names, "WithFair") {
			excluded = append(excluded, [2]string{"WithWeight", "WithFair"})
		}
	}
	for _, pair := range optionsApart(lockKinds[k]) {
		if slices.Contains(names, pair[0]) && slices.Contains(names, pair[1]) {
			excluded = append(excluded, pair)
		}
	}
	return excluded
}

// A trial is a Redsync in a bubble, on which locks with options are tried.
type trial struct {
	user
	nodes embedded.Nodes
	kind  int
	over  redsync.Sequencer // see modeRow
}

// try tests a lock with the options of one row or two: it works, or refuses every operation if the options exclude each
// other. With sets the first option, and the constructor of the lock sets the second. Only registers may be left.
func (tr trial) try(rows ...modeRow) {
	tr.Helper()
	what := rows[0].name
	rs, options := tr.With(rows[0].option(tr.over)), opts(nil)
	for _, r := range rows[1:] {
		what += " and " + r.name
		options = append(options, r.option(tr.over))
	}
	m := lockKinds[tr.kind].lock(rs, options...)
	if excluded := sides(tr.kind, rows...); excluded != nil {
		tr.refuses(m, excluded, what)
	} else {
		keys := lockKinds[tr.kind].keys
		if slices.ContainsFunc(rows, func(r modeRow) bool { return r.name == "WithPermits" }) {
			keys = []string{permitKey}
		}
		tr.lives(m, what, prefixed(strings.TrimSuffix(tr.NewMutex("a").Name(), "a"), keys))
	}
	time.Sleep(10 * ms)
	for i, n := range tr.nodes {
		for _, key := range n.Keys() {
			require.Contains(tr, key, ":fence", "%s: this key is left on node %d", what, i)
		}
	}
}

// prefixed returns the keys that locks with a prefix have in place of these keys.
func prefixed(prefix string, keys []string) (all []string) {
	for _, key := range keys {
		brace := strings.Repeat("{", strings.Count(key, "{")) // of a side key: the prefix is behind it
		all = append(all, brace+prefix+key[len(brace):])
	}
	return all
}

// lives locks, uses and unlocks m, and checks that every step works. keys are the keys that the nodes have meanwhile.
func (tr trial) lives(m *redsync.Mutex, what string, keys []string) {
	tr.Helper()
	require.NoError(tr, m.Lock(), what)
	time.Sleep(ms)
	for _, n := range tr.nodes {
		for _, key := range keys {
			require.True(tr, n.Exists(key), "%s: %s", what, key)
		}
	}
	until := m.Until()
	tr.extends(m)
	require.True(tr, m.Until().After(until), what)
	tr.confirms(m.Valid())
	tr.unlock(m)
}

// refuses checks that no operation of m does anything, and that the errors name both sides.
func (tr trial) refuses(m *redsync.Mutex, excluded [][2]string, what string) {
	tr.Helper()
	tried := operations(m)
	tried["Lock"] = func() (bool, error) { return false, m.Lock() }
	for name, operation := range tried {
		ok, err := operation()
		require.False(tr, ok, "%s: %s", what, name)
		require.Error(tr, err, "%s: %s", what, name)
		require.True(tr, slices.ContainsFunc(excluded, func(pair [2]string) bool {
			return strings.Contains(err.Error(), pair[0]) && strings.Contains(err.Error(), pair[1])
		}), "%s: %s: %v, want %v", what, name, err, excluded)
	}
}

// onTrial runs f on each kind of lock, on the Redsync that open returns.
func onTrial(t *testing.T, nodes int, open func(c change) *redsync.Redsync, f func(tr trial)) {
	t.Helper()
	for k, kind := range lockKinds {
		t.Run(kind.column, func(t *testing.T) {
			changing(t, nodes, func(c change) {
				tr := trial{user{c.T, open(c)}, c.nodes, k, redsync.Sequencer{}}
				m := locked(c, kind.lock(tr.Redsync))
				tr.over = m.Sequencer()
				tr.unlock(m)
				synctest.Wait()
				f(tr)
			})
		})
	}
}

func threeNodes(c change) *redsync.Redsync { return c.alone(c.at(0, 1, 2)) }

// environments are the Redsyncs on which TestOptionsGoTogether makes its locks. An environment with the name of a row
// is the test of that row.
var environments = map[string]struct {
	nodes int
	open  func(c change) *redsync.Redsync
}{
	"three nodes": {3, threeNodes},
	"WithPrefix":  {3, func(c change) *redsync.Redsync { return threeNodes(c).With(redsync.WithPrefix("p:")) }},
	"NewJoint":    {4, func(c change) *redsync.Redsync { return c.joint(c.at(0, 1, 2), c.at(1, 2, 3)) }},
	"pool.WithRestartGuard": {3, func(c change) *redsync.Redsync {
		var pools []pool.Pool
		for _, client := range c.clients {
			pools = append(pools, pool.New(client, pool.WithRestartGuard(minute), newNodes))
		}
		return c.alone(pools)
	}},
}

// TestOptionsGoTogether tries each option, and each pair of options, on each kind of lock in each environment. A lock
// works and leaves nothing, or every operation fails with an error that names both sides. From the gate on, all
// pairs are tried; before it, some pairs, and those that exclude each other, in one environment.
func TestOptionsGoTogether(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	rows, every := optionRows(), testlength.InGate(9, 4, 1, 1)
	for title, e := range environments {
		t.Run(title, func(t *testing.T) {
			onTrial(t, e.nodes, e.open, func(tr trial) {
				for i, a := range rows {
					tr.try(a)
					for j, b := range rows[:i] {
						switch {
						case every > 1 && (title != "three nodes" || (i*i+j)%every != 0 && sides(tr.kind, a, b) == nil):
						case (i+j)%2 == 0:
							tr.try(a, b)
						default:
							tr.try(b, a)
						}
					}
				}
			})
		})
	}
}

// TestRowsCoverAllOptionsAndMethods looks at the code: each option, and each method of Mutex, has a row.
func TestRowsCoverAllOptionsAndMethods(t *testing.T) {
	var rows []string
	for _, r := range modeRows {
		require.NotContains(t, rows, r.name)
		require.Len(t, r.cells, len(lockKinds), r.name)
		rows = append(rows, r.name)
	}
	of := reflect.TypeFor[*redsync.Mutex]()
	for i := range of.NumMethod() {
		name := of.Method(i).Name
		if slices.Contains([]string{"Format", "LogValue"}, name) {
			continue // any Mutex can be printed
		}
		if name != "Context" { // LockContext and the like have the row of Lock
			name = strings.TrimSuffix(name, "Context")
		}
		assert.Contains(t, rows, name, "modeRows has no row for it")
	}
	options := 0
	for _, source := range sources(t) {
		for _, match := range regexp.MustCompile(`(?m)^func (With\w+)\(`).FindAllStringSubmatch(source, -1) {
			options++
			assert.Contains(t, rows, match[1], "modeRows has no row for it")
		}
	}
	assert.GreaterOrEqual(t, options, len(optionRows()))
}

// TestPageSaysWhatGoesTogether compares the table of the page with modeRows. A cell of the page may say more after a
// colon or a semicolon.
func TestPageSaysWhatGoesTogether(t *testing.T) {
	said := readModesPage(t)
	for _, r := range modeRows {
		assert.Equal(t, r.cells, said[r.name], r.name)
		delete(said, r.name)
	}
	assert.Empty(t, slices.Collect(maps.Keys(said)), "modeRows lacks these rows of the page")
}

// TestPageNamesWhatExcludesEachOther compares the list of the page with the table that makes the errors. What goes with
// no lock on several names is in the page's column for these.
func TestPageNamesWhatExcludesEachOther(t *testing.T) {
	text := read(t, modesPage)
	said, want := map[[2]string]bool{}, map[[2]string]bool{}
	unordered := func(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }
	for _, item := range regexp.MustCompile("(?m)^- `(\\w+)` excludes (.*)$").FindAllStringSubmatch(text, -1) {
		for _, other := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(item[2], -1) {
			said[unordered(item[1], other[1])] = true
		}
	}
	several := map[string]bool{}
	for _, pair := range fortests.Exclusions() {
		if pair[1] == "NewMultiMutex" {
			several[pair[0]] = true
			continue
		}
		want[unordered(pair[0], pair[1])] = true
	}
	assert.Equal(t, want, said)
	for _, r := range optionRows() {
		if fails := r.cells[1] == fails && r.name != "WithWeight"; fails { // it needs WithPermits
			assert.True(t, several[r.name], r.name)
		}
	}
}

// readModesPage returns the cells of each option and method that the table of the page names. The first cell of a row
// may name several, in backquotes.
func readModesPage(t *testing.T) map[string][]string {
	t.Helper()
	text := read(t, modesPage)
	header := "| option or method |"
	for _, kind := range lockKinds {
		header += " " + kind.column + " |"
	}
	_, rest, found := strings.Cut(text, header+"\n")
	require.True(t, found, "the page has no table with the header %s", header)
	said := map[string][]string{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		require.Len(t, cells, 1+len(lockKinds), line)
		var words []string
		for _, cell := range cells[1:] {
			words = append(words, strings.TrimSpace(regexp.MustCompile(`[:;].*`).ReplaceAllString(cell, "")))
		}
		for _, name := range regexp.MustCompile("`([^`(]+)[^`]*`").FindAllStringSubmatch(cells[0], -1) {
			require.NotContains(t, said, name[1]) // the page names it in two rows
			said[name[1]] = words
		}
	}
	return said
}

// A server may make its Redsync with any option: Current looks at the hold of somebody else.
func TestCurrentIgnoresTheOptionsOfTheRedsync(t *testing.T) {
	for _, kind := range lockKinds {
		play(t, func(f field) {
			m := locked(f, kind.lock(f.Redsync))
			s := m.Sequencer()
			for _, row := range optionRows() {
				require.NoError(f, f.With(row.option(s)).Current(f.Context(), s), "%s: %s", kind.column, row.name)
			}
			f.unlock(m)
		})
	}
}

// A new connection sends every script, also those of modes that its program does not use.
func TestNewConnectionSendsFewBytesOfScripts(t *testing.T) {
	play(t, func(f field) {
		scripts := map[string]bool{}
		f.nodes[0].On("script", 1<<20, embedded.Fault{Then: func(args []string) { scripts[args[len(args)-1]] = true }})
		f.meet()
		synctest.Wait()
		sent := 0
		for s := range scripts {
			sent += len(s)
		}
		f.Logf("%d scripts with %d bytes", len(scripts), sent)
		assert.Positive(f, sent)
		assert.LessOrEqual(f, sent, 64_000) // a bound that goes up needs a reason in the commit
	})
}
