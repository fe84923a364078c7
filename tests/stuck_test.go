package redsync_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file runs the procedure of docs/operating.md for a lock that is stuck.

// stuckScripts returns the scripts in the commands of the section, as the shell passes them to redis-cli: one that deletes a
// value, and one that takes a reader out.
func stuckScripts(t *testing.T) (deletes, removes string) {
	t.Helper()
	_, section, _ := strings.Cut(read(t, "../docs/operating.md"), "\n## A lock is stuck\n")
	found := regexp.MustCompile(`(?m)^ask EVAL "(.*)" 1 orders:17 'VALUE'$`).FindAllStringSubmatch(section, -1)
	require.Len(t, found, 2)
	shell := strings.NewReplacer(`\\`, `\`)
	return shell.Replace(found[0][1]), shell.Replace(found[1][1])
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
	deletes, removes := stuckScripts(t)
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
		var all []*redsync.Mutex
		for range 2 {
			all = append(all, locked(f, f.another().NewMutex(name, withShared, withWatchdog)))
			time.Sleep(ms)
		}
		synctest.Wait()
		lines := strings.Split(must(f.nodes[0].Get(name)), "\n")
		require.Len(f, lines, 4)
		assert.Equal(f, "readers", lines[0])
		assert.Zero(f, f.breaks(deletes, name, lines[1]))
		assert.Zero(f, f.breaks(removes, name, "another"))
		for i, line := range []string{lines[2], lines[1]} {
			value, digits := line[:len(line)-14], line[len(line)-13:]
			assert.Regexp(f, `^\d{13}$`, digits)
			assert.Equal(f, 5, f.breaks(removes, name, value))
			assert.Zero(f, f.breaks(removes, name, value))
			assert.Equal(f, i == 0, f.nodes[0].Exists(name))
			if i == 0 {
				assert.Len(f, f.inspected(f.NewMutex(name)).Holders, 1)
				time.Sleep(5 * sec) // the other extends
				alive(f, all[0])
				erred(f, all[1].Err())
			}
		}
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
