package redsync_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file tests Inspect where somebody means harm, or where nodes have forgotten what they granted.

// A record is what a program keeps of a lock. Package fmt calls no method of what is in its fields.
type record struct {
	status redsync.Status
	holder *redsync.Holder
	all    []redsync.Holder
}

// Nothing that a program writes of a Status shows the value, not even where package fmt does not call Holder.Format: in fields
// that are not exported, and for the verbs that it calls wrong.
func TestNoFormShowsTheValue(t *testing.T) {
	for _, kind := range lockKinds {
		play(t, func(f field) {
			m := locked(f, kind.lock(f.Redsync, withOwner("worker-7@host")))
			s := f.inspected(m)
			r := record{s, &s.Holders[0], s.Holders}
			var shown strings.Builder
			for _, v := range []any{s, &s, s.Holders, s.Holders[0], &s.Holders[0], r, &r} {
				for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%w", "%!", "%t"} {
					fmt.Fprintf(&shown, verb, v)
				}
				text, _ := json.Marshal(v)
				shown.Write(text)
				slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "v", v)
				slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "v", v)
			}
			value := m.Value()[:26]
			assert.Contains(f, shown.String(), s.Holders[0].ID)
			for _, form := range []string{"%s", "%x", "%X"} {
				assert.NotContains(f, shown.String(), fmt.Sprintf(form, value))
			}
			f.unlock(m)
		})
	}
}

// A key that no lock can have ends no connection: other locks are held and extended on the same connections.
func TestAHugeValueEndsNoConnection(t *testing.T) {
	testlength.NotShort(t) // the race detector takes long for so many bytes
	for key, want := range map[string]error{"lock": redsync.ErrNoQuorum, "{lock}:queue": nil, fenceKey: nil} {
		playAs(t, key, func(f field) {
			holder := f.theirs("lock", withOwner("them"), withWatchdog)
			f.meet()
			connected := func() (count int) {
				for _, n := range f.nodes {
					count += n.TotalConnectionCount()
				}
				return count
			}
			before := connected()
			for _, n := range f.nodes {
				require.NoError(f, n.Set(key, strings.Repeat("x", 17<<20)))
			}
			_, err := f.NewMutex("lock").Inspect(f.Context())
			require.Equal(f, want == nil, err == nil)
			if want != nil {
				require.ErrorIs(f, err, want)
				require.ErrorContains(f, err, "too long")
			}
			require.Error(f, f.NewMutex("lock", withOwner("me")).TryLock())
			assert.Equal(f, before, connected())
			_, _ = holder.Unlock()
		})
	}
}

func TestInspectOfARegisterThatIsTooLarge(t *testing.T) {
	play(t, func(f field) {
		require.NoError(f, f.nodes[0].Set(fenceKey, "99999999999999999999"))
		assert.Zero(f, f.inspected(f.NewMutex("lock")).Register)
	})
}
