package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/safety"
)

// An objection is something that people say can go wrong with locks on Redis, and
// the scene that plays it.
type objection struct {
	key    string // the name of the test
	text   string
	play   func(*stage) finding
	clocks bool // servers have clocks that can be set
	// out says, by library, why the scene does not apply to it.
	out     map[string]string
	several bool // about locks on several names: played with accusedOfSeveral instead of accusedOnes
	readers bool // about readers and writers: played with accusedOfReaders
	permits bool // about permits: played with accusedOfPermits
	leaders bool // about leaders: played with accusedOfLeaders
	ticks   bool // about jobs of a schedule: played with accusedOfTicks
	// brief are the other libraries with which the scene takes less than 2 s.
	brief []string
}

const (
	oneNodeOnly = "it has one node, and no quorum"
	noJointSets = "it has no joint sets"
)

var (
	v4      = []string{redsyncV4}
	oneKey  = []string{oneKeyOnOne}
	anybody = []string{redsyncV4, oneKeyOnOne}
	redlock = []string{nodeRedlock}
	both    = []string{nodeRedlock, redsyncV4}
	counts  = []string{counting}
)

var objections = []objection{
	{key: "paused-holder-asks", text: "the holder is paused, and then asks", play: pausedHolderAsks},
	{key: "paused-holder-writes", text: "the holder is paused between its check and its write", play: pausedHolderWrites},
	{key: "paused-during-lock", text: "the client is paused while the replies to Lock are on their way", play: pausedDuringLock},
	{key: "server-clock-forward", text: "clocks of two nodes jump forward by an hour", play: clocksForward, clocks: true, brief: anybody},
	{key: "server-clock-back", text: "clocks of two nodes jump back by an hour, and the holder dies", play: clocksBack, clocks: true},
	{key: "clocks-differ", text: "the nodes' clocks are a minute ahead of the clients'", play: clocksDiffer, clocks: true, brief: anybody},
	{
		key: "bare-quorum-clock", text: "a lock on three of five nodes, and the clock of one jumps", play: clockOfABareQuorum, clocks: true,
		out: map[string]string{oneKeyOnOne: oneNodeOnly},
	},
	{key: "minority-restarts", text: "two nodes restart without their data", play: minorityRestarts, brief: anybody},
	{
		key: "bare-quorum-restarts", text: "a lock on three of five nodes, and one restarts without its data",
		play: bareQuorumRestarts(setting{Expiry: long, Fencing: true}), out: map[string]string{oneKeyOnOne: oneNodeOnly},
	},
	{
		key: "bare-quorum-restarts-guarded", text: "the same with pool.WithRestartGuard",
		play: bareQuorumRestarts(setting{Expiry: long, Guard: true}),
		out:  map[string]string{redsyncV4: "it has no guard", oneKeyOnOne: "it has no guard"},
	},
	{key: "late-set", text: "SETs arrive after the client has given up or unlocked", play: lateSet},
	{key: "late-release", text: "a release arrives when the next one has the lock", play: lateRelease},
	{key: "frozen-minority", text: "two nodes are frozen", play: frozenMinority},
	{key: "lost-replies", text: "the replies to Lock are lost on three nodes", play: lostReplies, brief: v4},
	{key: "cancelled-lock", text: "the context ends while Lock waits for frozen nodes", play: cancelledLock},
	{key: "split-vote", text: "five processes split the votes", play: splitVote, brief: v4},
	{key: "failover", text: "a node fails over to a replica that lacks the key", play: failover, brief: anybody},
	{key: "flush-minority", text: "FLUSHALL on two nodes", play: minorityFlushed, brief: anybody},
	{key: "flush-all", text: "FLUSHALL on all nodes", play: allFlushed, brief: oneKey},
	{key: "eviction", text: "two nodes evict the key", play: eviction, brief: anybody},
	{
		key: "extend-after-loss", text: "Extend when the lock is over, with keys set again on extension", play: extendAfterLoss, brief: v4,
		out: map[string]string{oneKeyOnOne: "it has no Extend"},
	},
	{
		key: "auto-extension-after-loss", text: "a lock that extends itself is somebody else's", play: autoExtensionAfterLoss, brief: oneKey,
		out: map[string]string{redsyncV4: "it does not extend locks itself"},
	},
	{key: "unlock-of-anothers", text: "Unlock when somebody else has the lock", play: unlockOfAnothers, brief: anybody},
	{key: "nodes-replaced", text: "processes with the old nodes and processes with the new ones run at once", play: nodesReplaced},
	{
		key: "nodes-replaced-jointly", text: "the same with processes that have both sets between them", play: nodesReplacedJointly,
		out: map[string]string{redsyncV4: noJointSets, oneKeyOnOne: noJointSets},
	},
	{key: "partition", text: "a holder that extends its lock is cut off from all nodes", play: cutOff},
	{
		key: "several-opposite", text: "two processes lock two names in opposite orders", several: true,
		play: transfers([]string{"from", "to"}, []string{"to", "from"}), brief: redlock,
	},
	{key: "several-circle", text: "three processes lock two names each, in a circle", several: true, play: transfers(circle(3)...)},
	{key: "several-hold-and-wait", text: "one of two names is taken for long, and another process wants the other", several: true, play: holdAndWait},
	{key: "several-dies-in-release", text: "the holder dies when its release has reached two nodes", several: true, play: diesInRelease},
	{key: "several-lost-releases", text: "the replies to the release are lost on three nodes", several: true, play: lostReleases},
	{key: "several-minority-gone", text: "one of two keys is deleted on two nodes", several: true, play: oneOfTheKeysGone(2), brief: both},
	{key: "several-quorum-gone", text: "one of two keys is deleted on three nodes", several: true, play: oneOfTheKeysGone(3)},
	{key: "permit-holder-paused", text: "the holder of a permit is paused, and then writes", permits: true, play: permitHolderPaused},
	{key: "permit-holder-dies", text: "the holder of a permit dies", permits: true, play: permitHolderDies},
	{key: "permits-fewer", text: "new processes know of fewer permits", permits: true, play: fewerPermits},
	{key: "permits-two-nodes-each", text: "each process reaches two of three nodes, not all the same", permits: true, play: eachOnTwoNodes, brief: counts},
	{key: "permits-heavy", text: "one permit after another is taken, and somebody wants three", permits: true, play: heavyAmongLight},
	{
		key: "permits-node-restarts", text: "permits on two of three nodes, and one restarts without its data", permits: true,
		play: permitsOnABareQuorum(setting{Expiry: long}),
	},
	{
		key: "permits-node-restarts-guarded", text: "the same with pool.WithRestartGuard", permits: true,
		play: permitsOnABareQuorum(setting{Expiry: long, Guard: true}), out: map[string]string{counting: "it has no guard"},
	},
	{key: "leader-paused", text: "a leader is paused, and then writes", leaders: true, play: pausedLeaderWrites},
	{key: "tick-clock-ahead", text: "a job starts in two processes, and the clock of one is ahead", ticks: true, play: tickWithAClockAhead},
	{key: "paused-reader", text: "a reader is paused, and reads while a writer writes", readers: true, play: pausedReader},
	{
		key: "reader-cut-off", text: "a reader that extends its lock is cut off from all nodes", readers: true, play: cutOffReader,
		out: map[string]string{oneSet: "its signal of a loss was not re-enacted"},
	},
	{key: "readers-overlap", text: "readers come so often that the name is never free, and a writer waits", readers: true, play: readersOverlap},
	{key: "readers-overlap-try", text: "the same, and the writer does not wait", readers: true, play: readersOverlapATry},
	{key: "writers-stream", text: "one writer after another, and readers come", readers: true, play: writersStream},
	{key: "reader-dies", text: "a reader dies while others come and go, and a writer waits", readers: true, play: readerDies(byWaiting)},
	{key: "reader-dies-try", text: "the same, and the writer does not wait", readers: true, play: readerDies(byTrying)},
	{key: "readers-upgrade", text: "two readers lock to write", readers: true, play: upgrades},
	{
		key: "downgrade-lost", text: "a downgrade does not reach two nodes", readers: true, play: downgradeLost,
		out: map[string]string{oneSet: "it has no downgrade"},
	},
}

// accused returns the libraries with which the objection is played.
func (o objection) accused() []accused {
	switch {
	case o.several:
		return accusedOfSeveral
	case o.readers:
		return accusedOfReaders
	case o.permits:
		return accusedOfPermits
	case o.leaders:
		return accusedOfLeaders
	case o.ticks:
		return accusedOfTicks
	}
	return accusedOnes
}

// atOnce is how many scenes are played at the same time, because they mostly wait.
const atOnce = 6

// TestObjections plays every objection with this library. It plays an objection with
// another library only if that takes less than 2 s, or if REDSYNC_TEST_LONG is set. It
// prints what was seen. It fails if a verdict differs from that in the documents, but not
// because a verdict is bad.
func TestObjections(t *testing.T) {
	realredis.Start(t, 0) // skips the test where there is no redis-server
	table := readTable(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var mu sync.Mutex
	findings := make(map[string]finding) // by objection and library
	slots := make(chan struct{}, atOnce)
	var playing sync.WaitGroup
	for _, o := range objections {
		for _, a := range o.accused() {
			if !o.toBePlayed(a) {
				continue
			}
			slots <- struct{}{}
			playing.Go(func() {
				defer func() { <-slots }()
				t.Run(o.key+"/"+a.name, func(t *testing.T) {
					f := o.playWith(t, a)
					mu.Lock()
					findings[o.key+"/"+a.name] = f
					mu.Unlock()
					if want := table[o.key][a.name]; want != f.verdict && want != varies {
						t.Errorf("%v; %s says %s", f, document, want)
					}
				})
			})
		}
	}
	playing.Wait()
	t.Log(report(t, findings))
}

func (o objection) toBePlayed(a accused) bool {
	return a.name == thisOne || o.out[a.name] != "" || os.Getenv(envLong) != "" || slices.Contains(o.brief, a.name)
}

func (o objection) playWith(t *testing.T, a accused) finding {
	t.Helper()
	if why := o.out[a.name]; why != "" {
		return found(unplayed, "%s", why)
	}
	start := time.Now()
	f := o.play(newStage(t, a, o.clocks))
	t.Logf("%v (%v)", f, time.Since(start).Round(10*time.Millisecond))
	return f
}

// report returns what was seen, in Markdown.
func report(t *testing.T, findings map[string]finding) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", machine(t))
	for i, o := range objections {
		if i == 0 || o.accused()[1].name != objections[i-1].accused()[1].name {
			b.WriteString("\n| objection")
			for _, a := range o.accused() {
				fmt.Fprintf(&b, " | %s", a.name)
			}
			b.WriteString(" |\n|---" + strings.Repeat("|---", len(o.accused())) + "|\n")
		}
		fmt.Fprintf(&b, "| %s", o.text)
		for _, a := range o.accused() {
			text := "not played"
			if f, ok := findings[o.key+"/"+a.name]; ok {
				text = f.String()
			}
			fmt.Fprintf(&b, " | %s", text)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// machine returns the computer and the software with which the scenes are played.
func machine(t *testing.T) string {
	t.Helper()
	server := "none"
	if out, err := exec.Command("redis-server", "--version").Output(); err == nil {
		server = regexp.MustCompile(`v=(\S+)`).FindStringSubmatch(string(out))[1]
	}
	return fmt.Sprintf("%s/%s, %d CPUs, %s, redis-server %s; %s.", runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), runtime.Version(), server, strings.Join(required(t), ", "))
}

// required returns the versions of the libraries, from go.mod.
func required(t *testing.T) []string {
	t.Helper()
	text := read(t, "go.mod")
	var list []string
	for _, path := range []string{"go-redsync/redsync/v4", "redis/rueidis", "redis/go-redis/v9"} {
		if m := regexp.MustCompile(`github\.com/` + path + ` (v\S+)`).FindStringSubmatch(text); m != nil {
			list = append(list, path+" "+m[1])
		}
	}
	return list
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The documents have tables with a row for each objection, and below each table a numbered note for each row. No two
// rows of the documents have the same number.

// document is the pattern by which failure messages name the documents.
const document = "docs/objections*.md"

var documents = []string{"../docs/objections.md", "../docs/objections-modes.md"}

// readDocuments returns the text of all documents.
func readDocuments(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, path := range documents {
		b.WriteString(read(t, path) + "\n")
	}
	return b.String()
}

// The columns of the tables. From columnFirst on, each library has a column.
const (
	columnNumber = iota
	columnObjection
	columnFirst
)

// An entry is what a document says about one objection.
type entry struct {
	head  []string // of its table
	cells []string
	note  string
}

// tests returns the names of the tests that the objection and its note quote.
func (e entry) tests() (names []string) {
	for _, m := range quoted.FindAllStringSubmatch(e.cells[columnObjection]+" "+e.note, -1) {
		names = append(names, m[1])
	}
	return names
}

// verdicts returns the row's verdicts by library.
func (e entry) verdicts() map[string]verdict {
	list := make(map[string]verdict)
	for i := columnFirst; i < len(e.cells); i++ {
		list[libraryOf(e.head[i])] = verdictOf(e.cells[i])
	}
	return list
}

// libraryOf returns the name of the library that the head of a column stands for.
func libraryOf(head string) string {
	for _, name := range []string{thisOne, redsyncV4, oneKeyOnOne, nodeRedlock, oneSet, counting, clientGo, shedLock} {
		if start, _, _ := strings.Cut(name, " v"); strings.HasPrefix(head, start) {
			return name
		}
	}
	return ""
}

// rows returns the rows of all tables by number. Every row must have a note, and every note a row.
func rows(t *testing.T) map[string]entry {
	t.Helper()
	list := make(map[string]entry)
	var head []string
	for line := range strings.Lines(readDocuments(t)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		number := cells[columnNumber]
		if number == "no." {
			head = cells
			continue
		}
		if len(cells) != len(head) {
			t.Fatalf("%s: %d cells, want %d: %s", document, len(cells), len(head), line)
		}
		if list[number].cells != nil {
			t.Errorf("%s has two rows %s", document, number)
		}
		list[number] = entry{head: head, cells: cells}
	}
	if len(list) == 0 {
		t.Fatalf("%s has no table", document)
	}
	for number, text := range notes(t) {
		r := list[number]
		if r.cells == nil {
			t.Fatalf("%s has no row for note %s", document, number)
		}
		r.note = text
		list[number] = r
	}
	for number, r := range list {
		if r.note == "" {
			t.Errorf("%s has no note for row %s", document, number)
		}
	}
	return list
}

// notes returns the items of the numbered lists, by number.
func notes(t *testing.T) map[string]string {
	t.Helper()
	list := make(map[string]string)
	number := "" // of the item that the last line belongs to
	for line := range strings.Lines(readDocuments(t)) {
		switch m := numbered.FindStringSubmatch(line); {
		case m != nil:
			number = m[1]
			if list[number] != "" {
				t.Errorf("%s has two notes %s", document, number)
			}
			list[number] = m[2]
		case number != "" && strings.HasPrefix(line, "   "):
			list[number] += " " + strings.TrimSpace(line)
		default:
			number = ""
		}
	}
	return list
}

var (
	quoted      = regexp.MustCompile("`(Test[^`]*)`")
	numbered    = regexp.MustCompile(`^(\d+)\. (.*\S)`)
	boldFirst   = regexp.MustCompile(`^\s*\*\*([a-z/]+)\*\*`)
	scenePrefix = "TestObjections/"
)

// readTable returns the verdicts of the tables, by objection and library.
func readTable(t *testing.T) map[string]map[string]verdict {
	t.Helper()
	table := make(map[string]map[string]verdict)
	for _, r := range rows(t) {
		for _, name := range r.tests() {
			key, ok := strings.CutPrefix(name, scenePrefix)
			if !ok {
				continue
			}
			if table[key] != nil {
				t.Errorf("%s has two rows for %s", document, key)
			}
			table[key] = r.verdicts()
		}
	}
	return table
}

func verdictOf(cell string) verdict {
	if m := boldFirst.FindStringSubmatch(cell); m != nil {
		return verdict(m[1])
	}
	return ""
}

// TestObjectionsDocument checks that the documents have a row with verdicts for each objection, and a note for each
// row. It also checks that each test that the documents name exists.
func TestObjectionsDocument(t *testing.T) {
	table := readTable(t)
	for _, o := range objections {
		if table[o.key] == nil {
			t.Errorf("%s has no row for %s", document, o.key)
		}
		for _, a := range o.accused() {
			if table[o.key][a.name] == "" {
				t.Errorf("%s has no verdict of %s with %s", document, o.key, a.name)
			}
		}
		for library, v := range table[o.key] {
			if !slices.Contains(verdicts, v) {
				t.Errorf("%s: the verdict of %s with %s is %q, want one of %v", document, o.key, library, v, verdicts)
			}
		}
		delete(table, o.key)
	}
	for key := range table {
		t.Errorf("%s names %s%s, and there is no such objection", document, scenePrefix, key)
	}
	tests := testsOfTheRepository(t)
	for _, m := range quoted.FindAllStringSubmatch(readDocuments(t), -1) {
		function, scene, _ := strings.Cut(m[1], "/")
		if !tests[function] {
			t.Errorf("%s names %s, and there is no such test", document, function)
		}
		if strings.HasPrefix(function, "TestScenes") && !isScene(scene) {
			t.Errorf("%s names the scene %q, and there is none", document, scene)
		}
	}
	for number, r := range rows(t) {
		if len(r.tests()) == 0 {
			t.Errorf("%s: no test for row %s: %s", document, number, r.cells[columnObjection])
		}
	}
}

func isScene(name string) bool {
	return slices.ContainsFunc(safety.Scenes, func(s safety.Scene) bool { return s.Name == name })
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range testFunction.FindAllStringSubmatch(read(t, path), -1) {
			tests[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
