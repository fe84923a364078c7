package wire_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
)

func TestMain(m *testing.M) {
	// Clients that a test does not close keep their circuit breakers.
	testmain.RunWaiting(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop"))
}
