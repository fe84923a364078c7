package v4scenes

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryTestOfV4IsAccountedFor counts what the closing table of the move says: 72 tests, none of them twice.
func TestEveryTestOfV4IsAccountedFor(t *testing.T) {
	names := []string{
		"TestMutex", "TestTryLock", "TestMutexAlreadyLocked", "TestMutexExtend", "TestMutexExtendExpired",
		"TestSetNXOnExtendAcquiresLockWhenKeyIsExpired", "TestSetNXOnExtendFailsToAcquireLockWhenKeyIsTaken",
		"TestMutexUnlockExpired", "TestMutexQuorum", "TestValid", "TestMutexLockUnlockSplit", "TestRedsync",
	}
	drivers := []string{"redigo", "goredis", "goredis_v7", "goredis_v8", "goredis_v9", "rueidis"}
	var want, got []string
	for _, n := range names {
		for _, d := range drivers {
			want = append(want, n+"/"+d)
		}
	}
	kept := 0
	for _, m := range Moved() {
		got = append(got, m.Test+"/"+m.Driver)
		require.True(t, slices.Contains([]string{ThroughOptions, ThroughDialer, ThroughRueidis}, m.Through), m.Through)
		if m.How == "" {
			kept++
		}
	}
	require.Equal(t, want, got)
	require.Len(t, got, 72)
	require.Equal(t, 12, kept, "6 scenes as they were, with the 2 drivers that this library takes")
	for _, s := range Scenes {
		require.NotNil(t, s.play, s.Test)
		require.LessOrEqual(t, s.Nodes, MaxNodes, s.Test)
	}
}
