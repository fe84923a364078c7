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

// The documents have tables with a row for each objection, and below each table a numbered note for each row.
var documents = []string{"../../docs/objections.md", "../../docs/objections-modes.md"}

var (
	objectionRow = regexp.MustCompile(`(?m)^\| (\d+) \|.*$`)
	objection    = regexp.MustCompile("`TestObjections/([^`]*)` \\| (.*) \\|$")
	bold         = regexp.MustCompile(`^\*\*([a-z/]+)\*\*`)
	namedTest    = regexp.MustCompile("`(Test\\w+)(?:/([^`]*))?`")
)

// readTable returns the verdicts of the table by objection, in the order of libraries.
func readTable(t *testing.T) map[string][]verdict {
	table := make(map[string][]verdict)
	for _, row := range objectionRow.FindAllString(read(t, documents[0]), -1) {
		m := objection.FindStringSubmatch(row)
		if m == nil {
			continue
		}
		require.Nil(t, table[m[1]], m[1])
		for cell := range strings.SplitSeq(m[2], " | ") {
			v := bold.FindStringSubmatch(cell)
			require.NotNil(t, v, cell)
			table[m[1]] = append(table[m[1]], verdict(v[1]))
		}
		require.Len(t, table[m[1]], len(libraries), row)
	}
	return table
}

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Each objection has a row with verdicts. Each row has a note, row or note names a test, and each test that is named exists.
func TestObjectionsDocument(t *testing.T) {
	table := readTable(t)
	for key, verdicts := range table {
		assert.NotNil(t, objections[key], key)
		assert.Subset(t, []verdict{kept, lost, broken, varies, unplayed}, verdicts, key)
	}
	assert.Len(t, table, len(objections))
	tests := testsOfTheRepository(t)
	for _, path := range documents {
		text := read(t, path)
		for _, row := range objectionRow.FindAllStringSubmatch(text, -1) {
			note := regexp.MustCompile(`(?m)^`+row[1]+`\. .*(\n   .*)*`).FindAllString(text, -1)
			require.Len(t, note, 1, row[1])
			assert.Regexp(t, namedTest, row[0]+note[0])
		}
		for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
			assert.True(t, tests[m[1]], m[1])
			if strings.HasPrefix(m[1], "TestScenes") {
				assert.True(t, slices.ContainsFunc(safety.Scenes, func(s safety.Scene) bool { return s.Name == m[2] }), m[2])
			}
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
