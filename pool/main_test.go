package pool_test

import (
	"flag"
	"os"
	"testing"
)

// Tests that run in parallel wait for real servers, most of the time: more of them run at once
// than there are processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
