package redsync_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/peek"
)

// This file shows WithSequencer: what it adds to WithValue.

// given returns the Sequencer of a lock that another process has given away.
func (f field) given(options ...redsync.Option) redsync.Sequencer {
	f.Helper()
	m := f.another(options...).NewMutex("lock")
	require.NoError(f, m.Lock())
	s, err := m.Detach(f.Context())
	require.NoError(f, err)
	synctest.Wait()
	return s
}

func TestWithSequencerAdoptsTheHoldWithItsToken(t *testing.T) {
	for name, options := range map[string][]redsync.Option{
		"fencing":    {redsync.WithFencing()},
		"no fencing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				other := f.another()
				s := f.given(redsync.WithFencing())
				require.NotZero(t, s.Token)
				m := f.NewMutex(s.Name, append(options, redsync.WithSequencer(s))...)
				assert.Equal(t, s.Value, m.Value())
				assert.Zero(t, m.Fence(), "an adopted Mutex has no token before it extends")
				assert.Zero(t, m.Sequencer())
				ok, err := m.Valid()
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Zero(t, m.Fence())

				start := time.Now()
				ok, err = m.Extend()
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, validity, m.Until().Sub(start))
				assert.Equal(t, s.Token, m.Fence())
				assert.Equal(t, s, m.Sequencer())
				require.NoError(t, other.Current(f.Context(), m.Sequencer()))

				again, err := m.Detach(f.Context())
				require.NoError(t, err)
				assert.True(t, s == again)
				assert.Zero(t, m.Fence())
				m = other.NewMutex(s.Name, append(options, redsync.WithSequencer(again))...)
				require.NoError(t, m.Do(f.Context(), func(ctx context.Context) error {
					assert.Equal(t, s.Token, redsync.FromContext(ctx).Fence())
					return lasts(time.Minute)(ctx)
				}))
				assert.Zero(t, m.Fence())
				require.ErrorIs(t, other.With(redsync.WithFailFast(false)).Current(f.Context(), s), redsync.ErrLockAlreadyExpired)
			})
		})
	}
}

// A release raises the registers of the nodes that did not get the token, or have lost it. Without WithFencing it
// needs no permission for them.
func TestReleaseOfAnAdoptedHoldRaisesTheRegisters(t *testing.T) {
	for name, c := range map[string]struct {
		options []redsync.Option
		adopts  bool
		raises  bool
	}{
		"fencing":                         {[]redsync.Option{redsync.WithFencing()}, true, true},
		"no fencing":                      {nil, true, false},
		"fencing, it has adopted nothing": {[]redsync.Option{redsync.WithFencing()}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				s := f.given(redsync.WithFencing())
				for _, n := range f.nodes[3:] {
					n.Del(fenceKey)
				}
				m := f.NewMutex("lock", append(c.options, redsync.WithSequencer(s))...)
				if c.adopts {
					_, err := m.Extend()
					require.NoError(t, err)
				}
				f.unlock(m)
				after := any("")
				if c.raises {
					after = s.Token
				}
				synctest.Wait()
				for _, n := range f.nodes[3:] {
					got, _ := n.Get(fenceKey)
					assert.Equal(t, fmt.Sprint(after), got)
				}
				time.Sleep(20 * time.Second) // the release is repeated
				f.noKeys()
			})
		})
	}
}

// The giver's clock was ahead. The receiver has seen the token, so its own next token is greater at once.
func TestLockAfterAnAdoptedHoldHasAGreaterToken(t *testing.T) {
	play(t, func(f field) {
		giver := f.another(redsync.WithFencing())
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		peek.KnowsToken(giver, "lock", ahead)
		given := giver.NewMutex("lock")
		require.NoError(t, given.Lock())
		s, err := given.Detach(f.Context())
		require.NoError(t, err)
		require.Greater(t, s.Token, ahead)

		m := f.fenced().NewMutex("lock", redsync.WithSequencer(s))
		_, err = m.Extend()
		require.NoError(t, err)
		f.unlock(m)
		synctest.Wait()
		before := f.scripts()
		require.NoError(t, m.Lock())
		assert.Equal(t, s.Token+1, m.Fence())
		synctest.Wait()
		assert.Equal(t, before+5, f.scripts(), "Lock takes one round trip")
	})
}

// If the hold of a Sequencer is over, its token is not used, because nothing proves that the token was ever given.
func TestTokenOfAHoldThatWasNotAdoptedIsNotUsed(t *testing.T) {
	play(t, func(f field) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		m := f.fenced().NewMutex("lock", redsync.WithSequencer(redsync.Sequencer{Name: "lock", Token: ahead, Value: "over"}))
		_, err := m.Extend()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		_, err = m.Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		f.areAt("", "", "", "", "")
		require.NoError(t, m.Lock())
		assert.Less(t, m.Fence(), ahead)
	})
}

func TestWithSequencerThatFitsNoMutex(t *testing.T) {
	s := redsync.Sequencer{Name: "lock", Token: 7, Value: "secret"}
	several := sequencerOfNames([]string{"a", "b"}, 7, "secret")
	changed := several
	changed.Name = "lock"
	twice, disorder := sequencerOfNames([]string{"a", "a"}, 7, "v"), sequencerOfNames([]string{"b", "a"}, 7, "v")
	for name, c := range map[string]struct {
		name    string
		options []redsync.Option
		want    []string
	}{
		"another name":      {"other", []redsync.Option{redsync.WithSequencer(s)}, []string{`WithSequencer: the sequencer is of the lock "lock", not of "other"`}},
		"zero":              {"lock", []redsync.Option{redsync.WithSequencer(redsync.Sequencer{})}, []string{"WithSequencer: the sequencer has no value"}},
		"no value":          {"lock", []redsync.Option{redsync.WithSequencer(redsync.Sequencer{Name: "lock", Token: 7})}, []string{"WithSequencer: the sequencer has no value"}},
		"no name":           {"lock", []redsync.Option{redsync.WithSequencer(redsync.Sequencer{Value: "secret"})}, []string{`of the lock "", not of "lock"`}},
		"with a value":      {"lock", []redsync.Option{redsync.WithSequencer(s), redsync.WithValue("secret")}, []string{"WithValue excludes WithSequencer"}},
		"after a value":     {"lock", []redsync.Option{redsync.WithValue("secret"), redsync.WithSequencer(s)}, []string{"WithValue excludes WithSequencer"}},
		"a reserved name":   {"{lock}:fence", []redsync.Option{redsync.WithSequencer(redsync.Sequencer{Name: "{lock}:fence", Value: "v"})}, []string{"is reserved"}},
		"names twice":       {twice.Name, []redsync.Option{redsync.WithSequencer(twice)}, []string{`do not make up the name "a, a"`}},
		"names in disorder": {disorder.Name, []redsync.Option{redsync.WithSequencer(disorder)}, []string{`do not make up the name "b, a"`}},
		"changed names":     {"lock", []redsync.Option{redsync.WithSequencer(changed)}, []string{`do not make up the name "lock"`}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				for _, m := range []*redsync.Mutex{f.NewMutex(c.name, c.options...), f.With(c.options...).NewMutex(c.name)} {
					for _, want := range c.want {
						refuses(t, m, want)
						require.ErrorContains(t, m.Do(f.Context(), never), want)
						require.ErrorContains(t, f.notRun(m.TryDo(f.Context(), never)), want)
						_, err := m.Detach(f.Context())
						require.ErrorContains(t, err, want)
					}
					assert.NotContains(t, m.Lock().Error(), "secret")
				}
				assert.Zero(t, f.traffic())
			})
		})
	}
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithSequencer(f.given()), redsync.WithValue(""))
		_, err := m.Extend()
		require.NoError(t, err, "an empty value adopts nothing")
		f.unlocks(m)
		refuses(t, redsync.New().NewMutex("lock", redsync.WithSequencer(s)), "no pools")
		var none *redsync.Redsync
		require.ErrorIs(t, none.NewMutex("lock", redsync.WithSequencer(s)).Lock(), redsync.ErrNoPools)
	})
}

// A Redsync may have WithValue or WithSequencer as a default. That concerns its Mutexes only, and not Current.
func TestCurrentOfARedsyncThatAdopts(t *testing.T) {
	play(t, func(f field) {
		s := f.given()
		for _, rs := range []*redsync.Redsync{
			f.With(redsync.WithValue("another")), f.With(redsync.WithSequencer(redsync.Sequencer{Name: "other", Value: "w"})),
		} {
			require.NoError(t, rs.Current(f.Context(), s))
		}
		err := f.Current(f.Context(), sequencerOfNames([]string{"a", "b"}, 7, "v"))
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
	})
}

// The user knows the value of a lock that was adopted. So no lock of a Mutex that adopts is handed over.
func TestALockAfterWithSequencerIsNotHandedOver(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		m := k.NewMutex("lock", redsync.WithSequencer(redsync.Sequencer{Name: "lock", Value: "v"}))
		require.NoError(t, m.Lock(), "Lock begins a hold of its own, as with WithValue")
		value := peek.Value(m)
		assert.NotEqual(t, "v", value)
		c := k.calls(k.Redsync, patient()...)
		k.atOnce(m, c)
		assert.NotEqual(t, value, peek.Value(c.Mutex))
		k.unlocks(c.Mutex)
	})
}
