package rueidispool

import (
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testmain"
)

func TestMain(m *testing.M) { testmain.RunWaiting(m) }
