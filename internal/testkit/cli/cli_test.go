package cli_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// parse parses args with the flags -time and -n.
func parse(args ...string) error {
	flags := flag.NewFlagSet("program", flag.ContinueOnError)
	flags.Duration("time", time.Second, "how `long`: 1s to 1m")
	flags.Int("n", 1, "how many: 1 to 9")
	return cli.Parse(flags, args)
}

func TestStatusAndWhatIsPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		status    int
		out, err2 string
	}{
		"success":          {parse("-n", "2"), cli.OK, "", ""},
		"help":             {parse("-n", "2", "-h"), cli.OK, "Usage of program:", ""},
		"failure":          {errors.New("no luck"), cli.Failed, "", "program: no luck\n"},
		"bad value":        {parse("-time", "soon"), cli.Misuse, "", `"soon" for flag -time: parse error (-time: how long: 1s to 1m)`},
		"no value":         {parse("-n"), cli.Misuse, "", "-n (-n: how many: 1 to 9)"},
		"unknown flag":     {parse("-no-such"), cli.Misuse, "", "-no-such (-h lists the flags)"},
		"argument":         {parse("now"), cli.Misuse, "", `unexpected argument "now"`},
		"out of its range": {cli.Misusef("-n %d is out of range: 1 to 9", 10), cli.Misuse, "", "program: -n 10 is out of range: 1 to 9\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			assert.Equal(t, c.status, cli.Status("program", c.err, &out, &errs))
			assert.Contains(t, out.String(), c.out)
			assert.Contains(t, errs.String(), c.err2)
			assert.LessOrEqual(t, strings.Count(errs.String(), "\n"), 1, "one line")
			assert.Equal(t, c.out == "", out.Len() == 0, out.String())
		})
	}
}

func TestFolderAndFileAreLookedAt(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, cli.Folder("charts", dir))
	require.NoError(t, cli.File("json", filepath.Join(dir, "all.json")))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "nothing is left behind")

	none := filepath.Join(dir, "none")
	for want, err := range map[string]error{
		"-charts " + none + ": it must be a folder that can be written: no such file": cli.Folder("charts", none),
		"-json " + dir + ": it must be a file, and is a folder":                       cli.File("json", dir),
		"-json " + none + "/all.json: it must be a file in a folder":                  cli.File("json", filepath.Join(none, "all.json")),
	} {
		require.ErrorContains(t, err, want)
		assert.Equal(t, cli.Misuse, cli.Status("", err, new(bytes.Buffer), new(bytes.Buffer)))
	}
}
