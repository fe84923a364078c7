package pool_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testmain"
)

// TestMain lets 32 tests run in parallel, even with fewer processors: most of the time parallel tests only
// wait for real servers.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	// Clients that a test does not close keep their circuit breakers.
	testmain.Run(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop"))
}
