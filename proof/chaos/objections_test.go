package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/safety"
)

// envObjections is the environment variable that makes TestObjections run. .ci/release sets it.
const envObjections = "REDSYNC_TEST_OBJECTIONS"

// objections are what people say can go wrong with locks on Redis: docs/objections.md has a row for each. A scene with
// "clock" in its name has servers with clocks that can be set.
var objections = map[string]func(*stage) finding{
	"paused-holder-asks":           pausedHolderAsks,
	"paused-holder-writes":         pausedHolderWrites,
	"paused-during-lock":           pausedDuringLock,
	"server-clock-forward":         clocksForward,
	"server-clock-back":            clocksBack,
	"clocks-differ":                clocksDiffer,
	"bare-quorum-clock":            clockOfABareQuorum,
	"minority-restarts":            onAMinority(func(s *stage, i int) { s.restart(i) }),
	"bare-quorum-restarts":         bareQuorumRestarts(setting{Expiry: long, Fencing: true}),
	"bare-quorum-restarts-guarded": bareQuorumRestarts(setting{Expiry: long, Guard: true}),
	"late-set":                     lateSet,
	"late-release":                 lateRelease,
	"frozen-minority":              frozenMinority,
	"lost-replies":                 lostReplies,
	"cancelled-lock":               cancelledLock,
	"split-vote":                   splitVote,
	"failover":                     failover,
	"flush-minority":               onAMinority(func(s *stage, i int) { s.do(i, "flushall") }),
	"flush-all":                    allFlushed,
	"eviction":                     onAMinority((*stage).fill),
	"extend-after-loss":            extendAfterLoss,
	"auto-extension-after-loss":    autoExtensionAfterLoss,
	"unlock-of-anothers":           unlockOfAnothers,
	"nodes-replaced":               nodesReplaced,
	"nodes-replaced-jointly":       nodesReplacedJointly,
	"partition":                    cutOff,
}

// TestObjections plays every objection with each library. It logs what was seen. It fails if a verdict differs from that in the
// document, but not because a verdict is bad.
func TestObjections(t *testing.T) {
	if os.Getenv(envObjections) == "" {
		t.Skipf("%s is not set", envObjections)
	}
	realredis.Start(t, 0) // skips the test where there is no redis-server
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	for key, verdicts := range readTable(t) {
		for i, want := range verdicts {
			if want == unplayed {
				continue
			}
			t.Run(key+"/"+libraries[i].name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				f := objections[key](newStage(t, libraries[i], strings.Contains(key, "clock")))
				t.Logf("%v (%v)", f, time.Since(start).Round(10*time.Millisecond))
				assert.True(t, want == f.verdict || want == varies, want)
			})
		}
	}
}

// document has a row for each objection. Its scene and its tests are in testdata/objections.txt.
const document = "../../docs/objections.md"

var (
	objectionRow = regexp.MustCompile(`(?m)^\| (\d+) \| [^|]* \| (.*) \|$`)
	bold         = regexp.MustCompile(`^\*\*([a-z/]+)\*\*`)
)

// An evidence is a line of testdata/objections.txt.
type evidence struct {
	number, scene string // scene: "-" if no scene plays the objection
	tests         []string
}

func readEvidence(t *testing.T) (all []evidence) {
	for line := range strings.Lines(read(t, "testdata/objections.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), " | ")
		require.Len(t, cells, 4, line)
		e := evidence{number: cells[0], scene: cells[1]}
		if cells[2] != "-" {
			e.tests = strings.Split(cells[2], "; ")
		}
		all = append(all, e)
	}
	return all
}

// readTable returns the verdicts of the document by scene, in the order of libraries.
func readTable(t *testing.T) map[string][]verdict {
	rows, table := make(map[string]string), make(map[string][]verdict)
	for _, m := range objectionRow.FindAllStringSubmatch(read(t, document), -1) {
		rows[m[1]] = m[2]
	}
	for _, e := range readEvidence(t) {
		require.NotEmpty(t, rows[e.number], e.number)
		if e.scene == "-" {
			continue
		}
		require.Nil(t, table[e.scene], e.scene)
		for cell := range strings.SplitSeq(rows[e.number], " | ") {
			v := bold.FindStringSubmatch(cell)
			require.NotNil(t, v, cell)
			table[e.scene] = append(table[e.scene], verdict(v[1]))
		}
		require.Len(t, table[e.scene], len(libraries), e.number)
	}
	require.Len(t, readEvidence(t), len(rows))
	return table
}

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Each scene has a row with verdicts, a scene or a test shows each row, and each test that is named exists.
func TestObjectionsDocument(t *testing.T) {
	table := readTable(t)
	for key, verdicts := range table {
		assert.NotNil(t, objections[key], key)
		assert.Subset(t, []verdict{kept, lost, broken, varies, unplayed}, verdicts, key)
	}
	assert.Len(t, table, len(objections))
	tests := testsOfTheRepository(t)
	for _, e := range readEvidence(t) {
		assert.True(t, e.scene != "-" || len(e.tests) > 0, e.number)
		for _, test := range e.tests {
			name, sub, _ := strings.Cut(test, "/")
			assert.True(t, tests[name], test)
			assert.True(t, sub == "" || slices.ContainsFunc(safety.Scenes, func(s safety.Scene) bool { return s.Name == sub }), test)
		}
	}
}

func testsOfTheRepository(t *testing.T) map[string]bool {
	tests, function := make(map[string]bool), regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
				tests[m[1]] = true
			}
		}
		return err
	}))
	return tests
}
