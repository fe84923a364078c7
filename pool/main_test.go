package pool_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Tests that run in parallel wait for real servers, most of the time: more of them run at once
// than there are processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	code := m.Run()
	// What tests on servers have left ends within the silence after which a connection is given up.
	end := time.Now().Add(10 * time.Second)
	// Clients that a test does not close keep their circuit breakers.
	breakers := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop")
	err := goleak.Find(breakers)
	for err != nil && time.Now().Before(end) {
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // goleak does not signal
		err = goleak.Find(breakers)
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
