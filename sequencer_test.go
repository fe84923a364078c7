package redsync_test

import (
	"context"
	"encoding/base64"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// Sequencers: their text, and what the nodes say of them.

func TestSequencerRoundTrip(t *testing.T) {
	for name, s := range map[string]redsync.Sequencer{
		"usual":         {Name: "lock", Token: 1763000000000000, Value: "value"},
		"no token":      {Name: "lock", Value: "value"},
		"the last":      {Name: "lock", Token: math.MaxUint64, Value: "value"},
		"beyond 2^53":   {Name: "lock", Token: 9007199254740993, Value: "value"},
		"dots":          {Name: "a.b.c", Token: 7, Value: "..."},
		"bytes":         {Name: "\x00\xff\n", Token: 7, Value: "\xfe\xfd\xfc\xfb"},
		"other letters": {Name: "säule ☃", Token: 7, Value: "ключ"},
		"long":          {Name: strings.Repeat("n", 10000), Token: 7, Value: strings.Repeat("v", 10000)},
		"none":          {},
	} {
		t.Run(name, func(t *testing.T) {
			text := s.String()
			assert.Regexp(t, regexp.MustCompile(`^redsync1\.[A-Za-z0-9_-]*\.[0-9]+\.[A-Za-z0-9_-]*$`), text)
			got, err := redsync.ParseSequencer(text)
			require.NoError(t, err)
			assert.Equal(t, s, got)
		})
	}
}

// The text is stored and sent by others: it stays as it is.
func TestSequencerTextIsKnown(t *testing.T) {
	s := redsync.Sequencer{Name: "lock", Token: 7, Value: "v>?"}
	assert.Equal(t, "redsync1.bG9jaw.7.dj4_", s.String())
}

func TestParseSequencerOfOtherTexts(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":                  {"", "redsync1.name.token.value"},
		"a word":                 {"lock", "redsync1.name.token.value"},
		"the form alone":         {"redsync1", "redsync1.name.token.value"},
		"another form":           {"redsync2.bG9jaw.7.dg", "redsync1.name.token.value"},
		"the form in capitals":   {"REDSYNC1.bG9jaw.7.dg", "redsync1.name.token.value"},
		"a space before":         {" redsync1.bG9jaw.7.dg", "redsync1.name.token.value"},
		"three parts":            {"redsync1.bG9jaw.7", "redsync1.name.token.value"},
		"five parts":             {"redsync1.bG9jaw.7.dg.dg", "redsync1.name.token.value"},
		"a dot at the end":       {"redsync1.bG9jaw.7.dg.", "redsync1.name.token.value"},
		"a name that is no text": {"redsync1.b!.7.dg", "its name"},
		"a padded name":          {"redsync1.bG9jaw==.7.dg", "its name"},
		"a name cut":             {"redsync1.b.7.dg", "its name"},
		"a name of the other 64": {"redsync1.+/+/.7.dg", "its name"},
		"no token":               {"redsync1.bG9jaw..dg", "its token"},
		"a negative token":       {"redsync1.bG9jaw.-7.dg", "its token"},
		"a signed token":         {"redsync1.bG9jaw.+7.dg", "its token"},
		"a token of letters":     {"redsync1.bG9jaw.x.dg", "its token"},
		"a token in hexadecimal": {"redsync1.bG9jaw.0x7.dg", "its token"},
		"a token too high":       {"redsync1.bG9jaw.18446744073709551616.dg", "its token"},
		"a value that is none":   {"redsync1.bG9jaw.7.?", "its value"},
		"a padded value":         {"redsync1.bG9jaw.7.dg==", "its value"},
		"a value cut":            {"redsync1.bG9jaw.7.d", "its value"},
		"a space behind":         {"redsync1.bG9jaw.7.dg ", "its value"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := redsync.ParseSequencer(c.text)
			require.ErrorContains(t, err, "redsync: no sequencer: ")
			require.ErrorContains(t, err, c.want)
			assert.Zero(t, got)
		})
	}
}

func FuzzParseSequencer(f *testing.F) {
	for _, text := range []string{"", "redsync1.bG9jaw.7.dg", "redsync1..0.", "redsync1.bG9jaw.x.dg", "redsync1.b\ng.7.dg"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := redsync.ParseSequencer(text)
		if err != nil {
			assert.Zero(t, s)
			return
		}
		again, err := redsync.ParseSequencer(s.String())
		require.NoError(t, err)
		assert.Equal(t, s, again)
	})
}

func FuzzSequencer(f *testing.F) {
	f.Add("lock", uint64(7), "value")
	f.Fuzz(func(t *testing.T, name string, token uint64, value string) {
		s := redsync.Sequencer{Name: name, Token: token, Value: value}
		got, err := redsync.ParseSequencer(s.String())
		require.NoError(t, err)
		assert.Equal(t, s, got)
		assert.Contains(t, s.String(), base64.RawURLEncoding.EncodeToString([]byte(name)))
	})
}

func TestSequencerIsOfTheCurrentHold(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.another(redsync.WithFencing()).NewMutex("lock")
		assert.Zero(t, m.Sequencer(), "idle")
		require.NoError(t, m.Lock())
		want := redsync.Sequencer{Name: "lock", Token: m.Fence(), Value: m.Value()}
		assert.Equal(t, want, m.Sequencer())
		time.Sleep(validity - 1)
		assert.Equal(t, want, m.Sequencer(), "held to the last")
		time.Sleep(time.Nanosecond)
		assert.Zero(t, m.Sequencer(), "over")
		require.NoError(t, m.Lock())
		k.unlock(m)
		assert.Zero(t, m.Sequencer(), "unlocked")

		plain := k.NewMutex("lock")
		require.NoError(t, plain.Lock())
		assert.Equal(t, redsync.Sequencer{Name: "lock", Value: plain.Value()}, plain.Sequencer())
		assert.Zero(t, k.NewMutex("lock", redsync.WithValue(plain.Value())).Sequencer(), "adopted, and not extended")
	})
}

func TestCurrentWhileHeld(t *testing.T) {
	for name, c := range map[string]struct {
		options []redsync.Option
		fault   func(k kit)
	}{
		"fenced":         {[]redsync.Option{redsync.WithFencing()}, func(kit) {}},
		"not fenced":     {nil, func(kit) {}},
		"two are down":   {[]redsync.Option{redsync.WithFencing()}, func(k kit) { k.down(0, 1) }},
		"two are frozen": {[]redsync.Option{redsync.WithFencing()}, func(k kit) { k.freeze(2, 4) }},
		"two forgot it":  {[]redsync.Option{redsync.WithFencing()}, func(k kit) { k.lose(0, 1) }},
		"near its end":   {[]redsync.Option{redsync.WithFencing()}, func(kit) { time.Sleep(validity - 2*time.Millisecond) }},
		"extended":       {[]redsync.Option{redsync.WithFencing(), redsync.WithWatchdog()}, func(kit) { time.Sleep(time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				server := k.another()
				m := k.held(c.options...)
				s, err := redsync.ParseSequencer(m.Sequencer().String())
				require.NoError(t, err)
				c.fault(k)
				require.NoError(t, server.Current(k.Context(), s))
				assert.Positive(t, m.Remaining(), "asking does no harm")
				k.thaw(2, 4)
				_, _ = m.Unlock()
			})
		})
	}
}

func TestCurrentAfterwards(t *testing.T) {
	for name, end := range map[string]func(k kit, m *redsync.Mutex){
		"unlocked": func(k kit, m *redsync.Mutex) { k.unlock(m) },
		"expired":  func(kit, *redsync.Mutex) { time.Sleep(9 * time.Second) },
		"taken by another": func(k kit, m *redsync.Mutex) {
			time.Sleep(9 * time.Second)
			require.NoError(k, k.another(redsync.WithFencing()).NewMutex("lock").Lock())
		},
		"taken by the same": func(k kit, m *redsync.Mutex) {
			k.unlock(m)
			require.NoError(k, m.Lock())
		},
		"forgotten by a quorum": func(k kit, _ *redsync.Mutex) { k.lose(0, 2, 4) },
		"unlocked, two are down": func(k kit, m *redsync.Mutex) {
			k.unlock(m)
			k.down(0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				server := k.another(redsync.WithFailFast(false)) // it hears all who can prove it
				m := k.held(redsync.WithFencing())
				s := m.Sequencer()
				require.NoError(t, server.Current(k.Context(), s))
				end(k, m)
				synctest.Wait()
				require.ErrorIs(t, server.Current(k.Context(), s), redsync.ErrLockAlreadyExpired)
				_, _ = m.Unlock()
			})
		})
	}
}

func TestCurrentWhereTooFewTell(t *testing.T) {
	for name, fault := range map[string]func(f field){
		"down":                           func(f field) { f.kill(0, 1, 2) },
		"frozen":                         func(f field) { f.freeze(0, 1, 2) },
		"failing":                        func(f field) { f.refuse(0, 1, 2) },
		"two failing, one has forgotten": func(f field) { f.refuse(0, 1); f.lose(2) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				server := f.another()
				m := f.held(redsync.WithFencing())
				s := m.Sequencer()
				fault(f)
				start := time.Now()
				err := server.Current(f.Context(), s)
				require.Error(t, err)
				require.NotErrorIs(t, err, redsync.ErrLockAlreadyExpired, "nobody can tell")
				require.NotErrorIs(t, err, redsync.ErrNotHeld)
				var node *redsync.RedisError
				require.ErrorAs(t, err, &node)
				assert.LessOrEqual(t, time.Since(start), 400*time.Millisecond)
				f.thaw(0, 1, 2)
			})
		})
	}
}

func TestCurrentOfNoHold(t *testing.T) {
	play(t, func(f field) {
		before := f.traffic()
		for _, s := range []redsync.Sequencer{{}, {Name: "lock", Token: 7}, {Value: "v", Token: 7}} {
			require.ErrorIs(t, f.Current(f.Context(), s), redsync.ErrNotHeld)
		}
		require.Error(t, f.Current(f.Context(), redsync.Sequencer{Name: "{lock}:fence", Value: "v"}), "a reserved name")
		assert.Equal(t, before, f.traffic())

		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		for _, n := range f.nodes {
			n.On("evalsha", 9, embedded.Fault{Delay: time.Second})
		}
		require.ErrorIs(t, f.Current(ctx, redsync.Sequencer{Name: "lock", Value: "v"}), context.Canceled)
		require.NoError(t, f.Close(f.Context()))
		require.ErrorIs(t, f.Current(f.Context(), redsync.Sequencer{Name: "lock", Value: "v"}), redsync.ErrClosed)
	})
}
