// Package rigtest has what the tests of the example programs share.
package rigtest

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
)

// Main runs the tests of a program, or a process that a test has started.
func Main(m *testing.M, p rig.Program) {
	if rig.IsChild() {
		p.Main()
		return
	}
	logging.Disable()
	testmain.Run(m)
}

// Bounded returns a context that ends after rig.Patience.
func Bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	t.Cleanup(cancel)
	return ctx
}

// Play runs a program that starts redis-servers, and returns what it prints. Where there is no redis-server, it skips the
// test.
func Play(t *testing.T, p rig.Program, args ...string) (out string, err error) {
	t.Helper()
	realredis.Start(t, 0)
	var text bytes.Buffer
	err = p.Command(Bounded(t), args, &text)
	return text.String(), err
}

var times = regexp.MustCompile(`(?m)^ *\d+\.\d\d s  `)

// WithoutTimes returns the text of a rig.Timeline without the times.
func WithoutTimes(text string) string { return times.ReplaceAllString(text, "") }

// A Case is a call of a program that fails, or that prints help.
type Case struct {
	Args   []string
	Status int
	Err    string // without the name of the program, and the end of the line
}

// NeedsServers are the cases of a program that needs redis-servers, where there are none.
var NeedsServers = []Case{
	{nil, cli.Failed, realredis.ErrMissing.Error()},
	{[]string{"-nodes", "127.0.0.1:1"}, cli.Failed, "redsync: Open: the only node failed: context deadline exceeded: " +
		"node #0 (127.0.0.1:1): dial tcp 127.0.0.1:1: connect: connection refused"},
}

// Statuses checks the exit status and the error of each case, and of those that all programs have.
func Statuses(t *testing.T, p rig.Program, cases ...Case) {
	t.Helper()
	t.Setenv("PATH", t.TempDir()) // no redis-server
	for _, c := range append(cases,
		Case{[]string{"-h"}, cli.OK, ""},
		Case{[]string{"-fast"}, cli.Misuse, "flag provided but not defined: -fast (-h lists the flags)"},
		Case{[]string{"now"}, cli.Misuse, `unexpected argument "now" (-h lists the flags)`},
	) {
		var out, errs bytes.Buffer
		assert.Equal(t, c.Status, p.Run(t.Context(), c.Args, &out, &errs), "%v", c.Args)
		assert.Equal(t, c.Status == cli.OK, out.Len() > 0, "%v", c.Args)
		want := ""
		if c.Err != "" {
			want = p.Name + ": " + c.Err + "\n"
		}
		assert.Equal(t, want, errs.String(), "%v", c.Args)
	}
}

// Misuses checks that each call with wrong arguments ends with a line that matches a regular expression, and shows no secret. A
// space separates two arguments.
func Misuses(t *testing.T, p rig.Program, cases map[string]string) {
	t.Helper()
	for args, says := range cases {
		var out, errs bytes.Buffer
		assert.Equal(t, cli.Misuse, p.Run(t.Context(), strings.Split(args, " "), &out, &errs), args)
		assert.Regexp(t, says, errs.String(), args)
		assert.NotContains(t, errs.String(), "secret", args)
		assert.Equal(t, 1, strings.Count(errs.String(), "\n"), args)
		assert.Empty(t, out.String(), args)
	}
}
