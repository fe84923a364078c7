package redsync_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file runs the procedure of docs/operating.md for a lock that is stuck.

// stuckScript returns the script in the commands of the section, as the shell passes it to redis-cli.
func stuckScript(t *testing.T) string {
	t.Helper()
	_, section, _ := strings.Cut(read(t, "../docs/operating.md"), "\n## A lock is stuck\n")
	found := regexp.MustCompile(`(?m)^ask EVAL "(.*)" 1 orders:17 'VALUE'$`).FindStringSubmatch(section)
	require.NotNil(t, found)
	return found[1]
}

// breaks runs a script of the page on each node, for one value at a key.
func (f field) breaks(script, key, value string) (done int) {
	f.Helper()
	for _, n := range f.nodes {
		c := n.Client()
		done += must(c.Eval(f.Context(), script, []string{key}, value).Int())
		noError(f, c.Close())
	}
	return done
}

func TestALockThatIsStuckIsBrokenWithRedisCLI(t *testing.T) {
	const name = "orders:17"
	deletes := stuckScript(t)
	play(t, func(f field) {
		m := locked(f, f.another().NewMutex(name, withWatchdog))
		synctest.Wait()
		value := must(f.nodes[0].Get(name))
		assert.Zero(f, f.breaks(deletes, name, "another"))
		assert.Equal(f, 5, f.breaks(deletes, name, value))
		assert.Zero(f, f.breaks(deletes, name, value))
		f.unlock(obtained(f, f.another().NewMutex(name)))
		<-m.Lost()
	})
	play(t, func(f field) {
		m := locked(f, f.another().NewMutex(name, twoPermits, withWatchdog))
		synctest.Wait()
		broken := 0
		for _, key := range []string{"{orders:17}:slot:0", "{orders:17}:slot:1"} {
			value, _ := f.nodes[0].Get(key)
			broken += f.breaks(deletes, key, value)
		}
		assert.Equal(f, 5, broken)
		<-m.Lost()
	})
}

// The last row of the table: what an Extend of redsync v4 finds after a force.
func TestRedsyncV4LearnsOfAForceAtItsExtend(t *testing.T) {
	play(t, func(f field) {
		const value = "Tq2NfQ6zYQ1dUt4QkPJqkA=="
		f.sets("a", value, minute, allNodes...)
		m := f.NewMutex("a")
		h := f.holderOf(m)
		assert.Equal(f, "redsync v4", h.Library)
		f.releases(m, h)
		synctest.Wait()
		touch := `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], 8000) else return 0 end`
		assert.Zero(f, f.breaks(touch, "a", value))
	})
}
