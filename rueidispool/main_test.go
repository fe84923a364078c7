package rueidispool

import (
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
)

func TestMain(m *testing.M) { testmain.RunWaiting(m) }
