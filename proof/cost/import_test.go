package cost

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// initialized matches what the runtime says about a package of the library: init PATH @0.56 ms, 0.04 ms clock, 23168 bytes, 120 allocs.
var initialized = regexp.MustCompile(`(?m)^init github\.com/seed14bd9ef4/redsync(\S*) @\S+ ms, (\S+) ms clock, (\d+) bytes, (\d+) allocs$`)

// importCost returns what a program pays for the import of the library before main begins, and the time in ns. The
// program is this test, with no test to run.
func importCost(t *testing.T) (c Cost, ns float64) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := initialized.FindAllSubmatch(out, -1)
	require.NotEmpty(t, lines, "%s", out)
	number := func(text []byte) float64 {
		n, err := strconv.ParseFloat(string(text), 64)
		require.NoError(t, err)
		return n
	}
	for _, line := range lines {
		if !strings.HasPrefix(string(line[1]), "/proof/") { // the rows
			ns += number(line[2]) * 1e6
			c.Bytes += number(line[3])
			c.Mallocs += number(line[4])
		}
	}
	return c, ns
}
