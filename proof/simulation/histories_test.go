package simulation

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file compares the histories of some seeds with the recorded ones, so that a refactoring can show that it has
// changed nothing.

const (
	recordedIn    = "testdata/histories.txt"
	recordedSeeds = 20 // of each class, from 1 on
	mostPlays     = 60 // of one seed
)

// A recordedClass is a kind of simulation that has a test of its own.
type recordedClass struct {
	name string
	in   scene
}

var recordedClasses = []recordedClass{
	{name: "plain"},
	{name: several, in: scene{with: several}},
	{name: readers, in: scene{with: readers}},
	{name: permits, in: scene{with: permits}},
	{name: leaders, in: scene{with: leaders}},
	{name: nesting, in: scene{with: nesting}},
	{name: ticks, in: scene{with: ticks}},
	{name: closing, in: scene{rough, ticks + "," + closing, ""}},
	{name: shorter, in: scene{rough, readers + "," + shorter, ""}},
	{name: fast, in: scene{rough, fast, ""}},
	{name: dials, in: scene{tidy, several + "," + off + "," + dials, ""}},
	{name: unpolled + "-" + several, in: scene{tidy, several + "," + unpolled, ""}},
	{name: unpolled + "-" + readers, in: scene{tidy, readers + "," + unpolled, ""}},
	{name: unpolled + "-" + permits, in: scene{tidy, permits + "," + unpolled, ""}},
	{name: native, in: scene{rough, values + "," + native, ""}},
	{name: "change", in: scene{realm: changing}},
}

// Each seed has the history whose hash is recorded. With REDSYNC_SIM_REWRITE the test records the hashes.
func TestHistories(t *testing.T) {
	if os.Getenv("REDSYNC_SIM_REWRITE") == "" && os.Getenv("REDSYNC_SIM_HISTORIES") == "" {
		testlength.FromGate(t)
	}
	if underRaceDetector() {
		t.Skip("with it the runtime draws which goroutine runs next")
	}
	oneByOne(t)
	testlength.NotShort(t)
	t.Setenv("REDSYNC_SIM_WITHOUT", "")
	text, err := os.ReadFile(recordedIn)
	require.NoError(t, err)
	if os.Getenv("REDSYNC_SIM_REWRITE") != "" {
		rewriteHistories(t, string(text))
		return
	}
	if !strings.Contains(string(text), "\n"+platform()+"\n") {
		t.Skipf("the histories are not recorded for %s", platform())
	}
	seeds := fromEnv(t, "REDSYNC_SIM_HISTORIES", testlength.Of(1, 1, recordedSeeds))
	for _, class := range recordedClasses {
		t.Run(class.name, func(t *testing.T) {
			if class.in.realm == changing && os.Getenv("REDSYNC_SIM_HISTORIES") == "" {
				t.Skip("its histories depend on the tests that this process has run before: see doc.go")
			}
			for seed := 1; seed <= seeds && !t.Failed(); seed++ {
				sameHistory(t, class, seed, string(text))
			}
		})
	}
}

// platform says where the hashes are valid. The order of goroutines depends on the version of Go, and the last bit of a
// floating-point number on the processor.
func platform() string {
	version := strings.SplitN(runtime.Version(), ".", 3)
	return strings.Join(version[:min(2, len(version))], ".") + " " + runtime.GOARCH
}

// sameHistory compares the history of a seed with the recorded one.
func sameHistory(t *testing.T, class recordedClass, seed int, recorded string) {
	t.Helper()
	s, hash := historyOf(t, class, seed, recorded, 15)
	if !strings.Contains(recorded, lineOf(class, seed, hash)) {
		t.Errorf("seed %d: the history is %s, not the recorded one (CONTRIBUTING.md: When a guard fails)\nto see it: %s",
			seed, hash, s.again())
	}
}

// historyOf plays a seed until it has the recorded history, or until that many plays have had the same other one. It
// returns the hash. Nearly always it plays a seed once if nothing has changed, but a few seeds have several histories:
// see doc.go.
func historyOf(t *testing.T, class recordedClass, seed int, recorded string, plays int) (s *simulation, hash string) {
	t.Helper()
	others := map[string]int{}
	for range mostPlays {
		s, hash = hashOf(t, class, seed)
		if strings.Contains(recorded, lineOf(class, seed, hash)) {
			break
		}
		if others[hash]++; others[hash] == plays {
			break
		}
	}
	if len(others) > 0 {
		t.Logf("%s, seed %d: plays that had another history than the recorded one: %v", class.name, seed, others)
	}
	return s, hash
}

// hashOf plays a seed, and returns a hash of its history and of the traffic of its nodes.
func hashOf(t *testing.T, class recordedClass, seed int) (s *simulation, hash string) {
	t.Helper()
	s, events := simulate(t, uint64(seed), class.in) //nolint:gosec // it is positive
	require.NotEmpty(t, events)
	told := lines(t, events)
	for i, n := range s.nodes {
		told = append(told, fmt.Sprintf("node %d: %x", i, n.Traffic()))
	}
	sum := sha256.Sum256([]byte(strings.Join(told, "\n")))
	return s, fmt.Sprintf("%x", sum[:6])
}

func lineOf(class recordedClass, seed int, hash string) string {
	return fmt.Sprintf("\n%s %d %s\n", class.name, seed, hash)
}

// rewriteHistories records the histories. A seed that still has the recorded one keeps it.
func rewriteHistories(t *testing.T, recorded string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Hashes of the histories of the simulation, by class and seed: see doc.go. To rewrite them:
# REDSYNC_SIM_REWRITE=1 go test -count=1 -timeout 1h -run 'TestHistories$' ./proof/simulation
` + platform() + "\n")
	for _, class := range recordedClasses {
		for seed := 1; seed <= recordedSeeds; seed++ {
			_, hash := historyOf(t, class, seed, recorded, 5) // so that no rare one is recorded
			b.WriteString(lineOf(class, seed, hash)[1:])
		}
	}
	require.NoError(t, os.WriteFile(recordedIn, []byte(b.String()), 0o644))
}
