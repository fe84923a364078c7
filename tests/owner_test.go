package redsync_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests WithOwner: what values say with it, in each mode, and which locks are then handed over or shared.
// internal/script tests the form of the values.

// oddLabel is an owner with what other formats use as separators.
const oddLabel = "worker-7@host ~ 1764237542123 größer %d.*"

// ownedBy checks that the value says this owner, since this moment, of the process of rs.
func (u user) ownedBy(value, label string, since time.Time) {
	u.Helper()
	owner, ok := script.OwnerOf(value)
	require.True(u, ok, "%q", value)
	want := script.Owner{Label: label, Process: fortests.Keeper(u.Redsync).Process.String(), Since: since.Truncate(ms)}
	assert.True(u, want.Since.Equal(owner.Since), "since %v, want %v", owner.Since, want.Since)
	want.Since = owner.Since
	assert.Equal(u, want, owner)
}

// The nodes have the value of each kind of lock with its owner, on single and joint sets, whether the Mutex or the Redsync
// has the option.
func TestOwnerOfEachKind(t *testing.T) {
	testlength.FromGate(t)
	for title, e := range environments {
		for _, kind := range lockKinds {
			t.Run(fmt.Sprint(title, " ", kind.column), func(t *testing.T) {
				changing(t, e.nodes, func(c change) {
					u := user{c.T, e.open(c)}
					options := opts{withOwner(oddLabel), withWatchdog}
					if !kind.permit {
						options = append(options, withFencing)
					}
					for _, m := range []*redsync.Mutex{kind.lock(u.Redsync, options...), kind.lock(u.With(options...))} {
						u.meet()
						time.Sleep(1500 * time.Microsecond)
						start := time.Now()
						locked(u, m)
						synctest.Wait()
						u.ownedBy(fortests.Value(m), oddLabel, start)
						for _, key := range prefixed(strings.TrimSuffix(u.NewMutex("a").Name(), "a"), kind.keys) {
							has := must(c.nodes[1].Get(key))
							assert.Contains(u, has, fortests.Value(m))
							assert.Equal(u, kind.shared, has != fortests.Value(m))
						}
						rival := kind.rival(u.Redsync)
						isTaken(u, rival.TryLock())
						time.Sleep(30 * sec) // the watchdog extends it
						u.extends(m)
						u.confirms(m.Valid())
						noError(u, u.current(u.Redsync, m.Sequencer()))
						u.unlock(m)
						synctest.Wait()
						obtained(u, rival)
						u.unlock(rival)
						synctest.Wait()
					}
				})
			})
		}
	}
}

func TestOwnerInDoAndLead(t *testing.T) {
	kitMet(t, func(k kit) {
		since, calls := time.Now(), 0
		says := func(ctx context.Context) error {
			k.ownedBy(redsync.FromContext(ctx).Value(), oddLabel, since)
			calls++
			return nil
		}
		owned := withOwner(oddLabel)
		noError(t, k.ran(k.TryDo(k.Context(), "lock", says, owned)))
		noError(t, k.With(owned).Do(k.Context(), "lock", func(ctx context.Context) error {
			return k.Do(ctx, "lock", says, withOwner("of a joined call"))
		}))
		noError(t, k.Lead(k.Context(), "lock", says, owned))
		assert.Equal(t, 3, calls)
	})
}

// A label that the option refuses is an error of every operation. The text shows it so that a terminal does nothing.
func TestOwnerOutOfRange(t *testing.T) {
	const valid = "out of range: 1 to 128 bytes of UTF-8, without control characters, invisible format characters, and spaces at its ends; "
	for bad, want := range map[string]string{
		"":                        `WithOwner("") is ` + valid + "it is empty",
		"a\x1b[2J\n":              `WithOwner("a\x1b[2J\n") is ` + valid + "it has the character U+001B",
		"a\u202eb":                `WithOwner("a\u202eb") is ` + valid + "it has the character U+202E",
		"a\xff":                   `WithOwner("a\xff") is ` + valid + "it is not UTF-8",
		"host ":                   `WithOwner("host ") is ` + valid + "it has a space at an end",
		strings.Repeat("x", 129):  valid + "it has 129 bytes",
		strings.Repeat("ü", 1000): valid + "it has 2000 bytes",
	} {
		play(t, func(f field) {
			for _, m := range []*redsync.Mutex{
				f.With(withOwner(bad)).NewMutex("lock"), f.NewMultiMutex(both, withOwner("good"), withOwner(bad)),
			} {
				refuses(t, m, want)
				text := m.Lock().Error()
				assert.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) }), "%q", text)
				assert.Less(t, len(text), 600)
			}
			says(t, f.does("lock", never, withOwner(bad)), want)
			says(t, f.Lead(f.Context(), "lock", never, withOwner(bad)), want)
			assert.Zero(t, f.traffic())
		})
	}
	onKit(t, func(k kit) { // the longest one, and the last of two
		k.unlocks(k.held(withOwner("a"), withOwner(strings.Repeat("x", 128))))
	})
}

// A lock that was acquired before its Mutex got the option is handed over and shared by the label it was acquired with.
func TestOwnerOfTheNextLock(t *testing.T) {
	playMet(t, func(f field) {
		m := f.locks()
		c := f.inLine(withOwner("a"))
		withOwner("a").Apply(m)
		plain := fortests.Value(m)
		f.atOnce(m, c)
		assert.NotEqual(t, plain, fortests.Value(c.Mutex))
		f.ownedBy(fortests.Value(c.Mutex), "a", c.at)
		f.unlocks(c)
		locked(t, m)
		f.ownedBy(fortests.Value(m), "a", time.Now())
		f.unlocks(m)
	})
}
