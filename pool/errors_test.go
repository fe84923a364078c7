package pool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// These functions are called for every reply, and nearly all replies have no error.
func TestNoErrorCostsNoAllocation(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if IsNoScript(nil) || IsDenied(nil) || IsCrossSlot(nil) || IsWrongType(nil) || IsRefusal(nil) || IsPermanent(nil) {
			t.Error("a function takes nil for an error of the node")
		}
	}))
}

func TestRecoveredKeepsErrors(t *testing.T) {
	failing := errors.New("failing")
	for _, r := range []any{failing, "failing"} {
		err := func() (err error) {
			defer recovered(&err)
			panic(r)
		}()
		require.EqualError(t, err, "failing")
		if r == failing { //nolint:errorlint // the value itself
			require.ErrorIs(t, err, failing)
		}
	}
}
