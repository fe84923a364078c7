package redsync_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows how a lock is adopted: with WithSequencer, and with WithValue.

// given returns the Sequencer of a lock that another process has given away.
func (k kit) given() redsync.Sequencer {
	return k.detaches(locked(k, k.another().NewMutex("lock")))
}

// given returns the Sequencer of a lock that another process has given away.
func (f field) given(options ...redsync.Option) redsync.Sequencer {
	return f.detaches(locked(f, f.another(options...).NewMutex("lock")))
}

func TestWithSequencerAdoptsTheHoldWithItsToken(t *testing.T) {
	testlength.NotShort(t)
	for name, options := range map[string]opts{"fencing": {withFencing}, "no fencing": nil} {
		playAs(t, name, func(f field) {
			other := f.another()
			s := f.given(withFencing)
			require.NotZero(f, s.Token)
			m := f.NewMutex(s.Name, append(options, withSequencer(s))...)
			assert.Equal(f, s.Value, m.Value())
			assert.Zero(f, m.Fence(), "an adopted Mutex has no token before it extends")
			assert.Zero(f, m.Sequencer())
			f.confirms(m.Valid())
			assert.Zero(f, m.Fence())

			start := time.Now()
			f.confirms(m.Extend())
			assert.Equal(f, validity, m.Until().Sub(start))
			assert.Equal(f, s.Token, m.Fence())
			assert.Equal(f, s, m.Sequencer())
			require.NoError(f, other.Current(f.Context(), s))

			assert.Equal(f, s, f.detaches(m))
			assert.Zero(f, m.Fence())
			m = other.NewMutex(s.Name, append(options, withSequencer(s))...)
			require.NoError(f, m.Do(f.Context(), func(ctx context.Context) error {
				assert.Equal(f, s.Token, m.Fence())
				return lasts(minute)(ctx)
			}))
			assert.Zero(f, m.Fence())
			errorIs(f, other.With(hearsAll).Current(f.Context(), s), redsync.ErrLockAlreadyExpired)
		})
	}
}

// The giver's clock was ahead. The receiver has seen the token, so its own next token is greater at once.
func TestLockAfterAnAdoptedHoldHasAGreaterToken(t *testing.T) {
	play(t, func(f field) {
		giver := f.another(withFencing)
		ahead := uint64(time.Now().Add(hour).UnixMicro())
		fortests.KnowsToken(giver, "lock", ahead)
		s := f.detaches(locked(f, giver.NewMutex("lock")))
		require.Greater(f, s.Token, ahead)

		m := f.fenced().NewMutex("lock", withSequencer(s))
		f.confirms(m.Extend())
		f.unlock(m)
		before := f.scripts()
		locked(f, m)
		assert.Equal(f, s.Token+1, m.Fence())
		assert.Equal(f, before+5, f.scripts(), "Lock takes one round trip")
	})
}

func TestWithSequencerThatFitsNoMutex(t *testing.T) {
	s := redsync.Sequencer{Name: "lock", Token: 7, Value: "secret"}
	changed := sequencerOfNames([]string{"a", "b"}, 7, "secret")
	changed.Name = "lock"
	twice, disorder := sequencerOfNames([]string{"a", "a"}, 7, "v"), sequencerOfNames([]string{"b", "a"}, 7, "v")
	for want, c := range map[string]struct {
		name  string
		of    redsync.Sequencer
		value string // for WithValue
	}{
		`WithSequencer: the sequencer is of the lock "lock", not of "other"`: {"other", s, ""},
		"WithSequencer: the sequencer has no value":                          {"lock", redsync.Sequencer{Name: "lock", Token: 7}, ""},
		`of the lock "", not of "lock"`:                                      {"lock", redsync.Sequencer{Value: "secret"}, ""},
		"WithValue excludes WithSequencer":                                   {"lock", s, "secret"},
		"is reserved":                                                        {fenceKey, redsync.Sequencer{Name: fenceKey, Value: "v"}, ""},
		`do not make up the name "a, a"`:                                     {twice.Name, twice, ""},
		`do not make up the name "b, a"`:                                     {disorder.Name, disorder, ""},
		`do not make up the name "lock"`:                                     {"lock", changed, ""},
	} {
		playAs(t, want, func(f field) {
			options := opts{withValue(c.value), withSequencer(c.of)}
			for _, m := range []*redsync.Mutex{f.NewMutex(c.name, options...), f.With(options...).NewMutex(c.name)} {
				refuses(f.T, m, want)
				require.ErrorContains(f, m.Do(f.Context(), never), want)
				require.ErrorContains(f, f.notRun(m.TryDo(f.Context(), never)), want)
				_, err := m.Detach(f.Context())
				require.ErrorContains(f, err, want)
				assert.NotContains(f, m.Lock().Error(), "secret")
			}
			f.hasSent(0)
		})
	}
	play(t, func(f field) {
		m := f.NewMutex("lock", withSequencer(f.given()), withValue(""))
		f.confirms(m.Extend()) // an empty value adopts nothing
		f.unlocks(m)
		refuses(f.T, redsync.New().NewMutex("lock", withSequencer(s)), "no pools")
	})
}

// A lock is adopted by its value, too: with WithValue, and by the Extend that takes the lock over.

// If the lock of an adopted value has expired, another process may hold the lock by now. So not even an Extend with
// WithSetNXOnExtend sets missing keys. Once the lock is held, later ones do.
func TestMutexAdoptedHealsNothing(t *testing.T) {
	play(t, func(f field) {
		for _, alive := range []int{0, 2, 3} {
			for _, n := range f.nodes[:alive] {
				require.NoError(f, n.Set("lock", "v"))
				n.SetTTL("lock", minute)
			}
			m := f.NewMutex("lock", withValue("v"), withSetNXOnExtend)
			if alive < 3 {
				failsWith(f, m.Extend, redsync.ErrLockAlreadyExpired)
			} else {
				f.confirms(m.Extend())
			}
			f.keysOn(alive)
			if alive == 3 {
				f.confirms(m.Extend())
				f.keysOn(5)
			}
		}
	})
}
