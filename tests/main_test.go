// Package redsync_test shows what a user of redsync sees, in virtual time and on real servers. The tests stand beside
// the library and not in it, so that the root of the repository can be read at a glance. fixture_test.go has what
// several of them use. The algorithm's safety properties and the examples stand in the root.
package redsync_test

import (
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
)

func TestMain(m *testing.M) { testmain.RunWaiting(m) }
