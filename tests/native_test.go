package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests the commands of newer servers that stand for scripts.

// natively plays f on nodes with such commands: of Redis, of Valkey, and on a set of which one node has none. The
// connections have proved them.
func natively(t *testing.T, f func(t *testing.T, f field)) {
	t.Helper()
	for _, versions := range [][5]string{
		{"Redis 8.6.3", "Redis 8.6.3", "Redis 8.4.0", "Redis 8.6.3", "Redis 8.6.3"},
		{"Valkey 9.1.2", "Valkey 9.1.2", "Valkey 9.1.2", "Valkey 9.1.2", "Valkey 9.1.2"},
		{"Redis 8.6.3", "Valkey 9.1.2", "", "Valkey 9.1.2", "Redis 8.6.3"},
	} {
		t.Run(versions[0]+versions[2], func(t *testing.T) {
			play(t, func(p field) {
				for i, version := range versions {
					p.nodes[i].SetVersion(version)
				}
				p.meet()
				p.meet()
				f(p.T, p)
			})
		})
	}
}

// deletions counts the native deletions that the nodes were sent.
func (f field) deletions() int {
	synctest.Wait()
	return f.commands("delex", "delifeq")
}

// A plain Lock and Unlock run no script, a Lock of several names neither. The first Unlock of a connection does, because
// it tries one command alone. Extend and the release of a failed attempt are scripts.
func TestNativeCommandsStandForScripts(t *testing.T) {
	natively(t, func(t *testing.T, f field) {
		native := 5
		for _, n := range f.nodes {
			if n.Commands("delex")+n.Commands("delifeq") == 0 {
				native--
			}
		}
		scripts, deletions, looks := f.scripts(), f.deletions(), f.commands("exists")
		m := f.held()
		f.unlock(m)
		f.noKeys()
		assert.Equal(t, 5-native, f.scripts()-scripts)
		assert.Equal(t, native, f.deletions()-deletions)
		assert.Equal(t, native, f.commands("exists")-looks)

		scripts = f.scripts()
		names := obtained(f, f.NewMultiMutex([]string{"a", "b"}))
		assert.Equal(t, 5-native, f.scripts()-scripts)
		assert.Equal(t, native, f.commands("msetex"))
		f.unlock(names)

		deletions = f.deletions()
		without := f.process(pool.WithoutNativeCommands())
		f.closes(without)
		f.as(without).meet()
		f.as(without).meet()
		assert.Equal(t, deletions, f.deletions())
	})
}

// Whatever the commands find, users are told what scripts would have told them, and the same is left.
func TestNativeCommandsSayWhatScriptsSay(t *testing.T) {
	scenes := map[string]func(f field) any{
		"its key is gone": func(f field) any {
			m := f.held()
			f.drop("lock")
			ok, err := m.Unlock()
			return fmt.Sprint(ok, err)
		},
		"it is another's": func(f field) any {
			m := f.held()
			f.sets("lock", "theirs", minute, allNodes...)
			ok, err := m.Unlock()
			return fmt.Sprint(ok, err)
		},
		"it is another's on two nodes": func(f field) any {
			m := f.held()
			f.sets("lock", "theirs", minute, 0, 1)
			ok, err := m.Unlock()
			return fmt.Sprint(ok, err)
		},
		"it is a list": func(f field) any {
			m := f.held()
			f.drop("lock")
			for _, n := range f.nodes {
				must(n.Push("lock", "x"))
			}
			ok, err := m.Unlock()
			return fmt.Sprint(ok, err)
		},
		"the queue is a list": func(f field) any {
			for _, n := range f.nodes {
				n.Del("{lock}:queue")
				must(n.Push("{lock}:queue", "x"))
			}
			ok, err := f.obtains().Unlock()
			return fmt.Sprint(ok, err)
		},
		"readers have it": func(f field) any {
			m := f.held()
			f.drop("lock")
			reader := f.obtains(redsync.WithShared())
			ok, err := m.Unlock()
			return fmt.Sprint(ok, err, must(reader.Unlock()))
		},
		"a name is taken": func(f field) any {
			f.sets("b", "theirs", minute, 0, 1, 2)
			f.sets("c", "theirs", minute, 0, 1, 2)
			return f.NewMultiMutex([]string{"a", "b", "c"}).TryLock()
		},
	}
	for name, scene := range scenes {
		var want string
		play(t, func(f field) {
			f.meet()
			want = f.outcomeOf(scene)
		})
		natively(t, func(t *testing.T, f field) {
			before := f.deletions() + f.commands("msetex")
			assert.Equal(t, want, f.outcomeOf(scene), name)
			assert.True(t, f.deletions()+f.commands("msetex") > before, name)
		})
	}
}

// someNodes matches which nodes an error names: those that have answered first.
var someNodes = regexp.MustCompile(`node #\d \([^)]*\)|nodes: \[[^\]]*\]`)

// outcomeOf returns what a scene returns, and the keys that are left after a while.
func (f field) outcomeOf(scene func(f field) any) string {
	said := someNodes.ReplaceAllString(fmt.Sprint(scene(f)), "node")
	time.Sleep(3 * sec)
	for _, n := range f.nodes {
		said += fmt.Sprintln(n.Keys())
	}
	return said
}

// A waiter of another process learns of the release before Unlock returns: the process may exit then.
func TestNativeReleaseTellsWaiters(t *testing.T) {
	natively(t, func(t *testing.T, f field) {
		m, b := f.held(), f.process()
		f.closes(b)
		b = b.With(redsync.WithRetryDelay(minute), forever)
		got := make(chan time.Duration)
		begin := time.Now()
		go func() {
			f.unlock(f.as(b).locks())
			got <- time.Since(begin)
		}()
		time.Sleep(sec)
		deletions, scripts := f.deletions(), f.scripts()
		f.unlock(m)
		assert.GreaterOrEqual(t, f.commands("evalsha"), scripts+3)
		assert.Less(t, <-got, sec+50*ms)
		assert.Greater(t, f.deletions(), deletions)
		f.noKeys()
	})
}

// A node that refuses a command runs the script instead: no vote is lost, nothing is executed twice, and the connection
// asks once.
func TestNativeCommandsThatAreRefused(t *testing.T) {
	parallelComputing(t)
	for how, lack := range map[string]embedded.Lack{"missing": embedded.Missing, "denied": embedded.Denied, "closing": embedded.Closing} {
		for _, command := range []string{"delex", "exists", "msetex"} {
			if how == "closing" && command == "exists" {
				continue // every server and proxy has it
			}
			for _, used := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s is %s, used %v", command, how, used), func(t *testing.T) {
					play(t, func(f field) {
						f.nodes.SetVersion("Redis 8.6.3")
						if used {
							f.meet()
							f.meet()
							f.extends(obtained(f, f.NewMutex("extended")))
							f.unlock(obtained(f, f.NewMultiMutex([]string{"a", "b"})))
						}
						f.nodes.Lacks(lack, strings.ToUpper(command))
						before := f.commands(command)
						for range 4 {
							m := f.locks(patient()...)
							f.extends(m)
							if synctest.Wait(); how != "closing" {
								f.keysOn(5)
							}
							if ok, err := m.Unlock(); how != "closing" { // the node runs what is behind, and Unlock cannot tell
								f.confirms(ok, err)
							}
							synctest.Wait()
							names := locked(f, f.NewMultiMutex([]string{"a", "b"}, patient()...))
							f.unlock(names)
							time.Sleep(sec)
						}
						f.noKeys()
						most := 5 // and once more, if a connection that has proved it ends at it
						if used && how == "closing" {
							most = 10
						}
						assert.LessOrEqual(t, f.commands(command)-before, most)
					})
				})
			}
		}
	}
}

// Replies to either half of a release are lost, or the connection ends between them: the release is repeated, and leaves
// nothing.
func TestNativeReleaseWhoseRepliesAreLost(t *testing.T) {
	parallelComputing(t)
	for _, fault := range []embedded.Fault{{LoseReply: true}, {LoseCommand: true}} {
		for _, command := range []string{"delex", "delifeq", "exists"} {
			natively(t, func(t *testing.T, f field) {
				m, b := f.held(), f.process()
				f.closes(b)
				for i := range 3 {
					f.nodes[i].On(command, 1, fault)
				}
				got := make(chan error, 1)
				go func() {
					w := b.NewMutex("lock", redsync.WithRetryDelay(minute), forever)
					got <- w.Lock()
					_, _ = w.Unlock()
				}()
				time.Sleep(sec)
				begin := time.Now()
				_, _ = m.Unlock()
				require.NoError(t, <-got)
				assert.Less(t, time.Since(begin), sec)
				time.Sleep(3 * sec)
				f.noKeys()
				f.nobodyWaits()
			})
		}
	}
}

// Nodes are replaced by older or newer servers while locks are used.
func TestNativeCommandsOfServersThatChange(t *testing.T) {
	play(t, func(f field) {
		for _, version := range []string{"Redis 8.6.3", "Redis 7.0.15", "Valkey 9.1.2", "", "Valkey 8.1.0"} {
			m := f.held()
			for i := range f.nodes {
				f.nodes[i].Kill()
				f.nodes[i].SetVersion(version)
				f.nodes[i].Restart(false)
				time.Sleep(100 * ms)
				f.extends(m)
			}
			f.unlock(m)
			f.noKeys()
		}
	})
}

// A user who may run no script can lock and unlock one name. The first Unlock tries a script.
func TestNativeCommandsNeedNoScripts(t *testing.T) {
	play(t, func(f field) {
		f.nodes.SetVersion("Valkey 9.1.2")
		f.nodes.Lacks(embedded.Denied, "EVAL", "EVALSHA")
		for range 3 {
			m := f.locks()
			f.unlock(m)
			f.noKeys()
		}
		assert.Equal(t, 5, f.scripts())
	})
}

// A waiter of the same process for another name, a limit of replies, and a context that ends soon: the first changes
// nothing, a request counts once, and who may be gone before the script can follow sends it at once.
func TestNativeCommandsBesideOtherCallers(t *testing.T) {
	play(t, func(f field) {
		f.nodes.SetVersion("Redis 8.6.3")
		few := f.process(pool.WithOutstanding(16))
		f.closes(few)
		f = f.as(few)
		f.meet()
		f.meet()
		f.sets("taken", "theirs", minute, allNodes...)
		waiting, end := context.WithCancel(f.Context())
		done := make(chan error, 1)
		go func() { done <- f.NewMutex("taken", forever).LockContext(waiting) }()
		time.Sleep(1100 * ms) // between two of its attempts
		scripts, deletions := f.scripts(), f.deletions()
		var held []*redsync.Mutex
		for i := range 12 {
			held = append(held, f.locks(redsync.WithPrefix(fmt.Sprint(i))))
		}
		synctest.Wait()
		ended := make(chan error)
		for _, m := range held {
			go func() {
				_, err := m.Unlock()
				ended <- err
			}()
		}
		more := []*redsync.Mutex{f.NewMutex("a"), f.NewMutex("b"), f.NewMutex("c")}
		for _, m := range more { // 15 requests at once
			go func() { ended <- m.TryLock() }()
		}
		for range len(held) + len(more) {
			noError(t, <-ended)
		}
		for _, m := range more {
			f.unlock(m)
		}
		assert.Equal(t, scripts, f.scripts())
		assert.Equal(t, deletions+15*5, f.deletions())
		m := f.held()
		f.confirms(m.UnlockContext(limited(f, 5*ms)))
		assert.Equal(t, deletions+15*5, f.deletions())
		end()
		<-done
	})
}

// From far away an Unlock has time for two answers: the first that tries the command, and one that must tell a waiter.
func TestNativeReleaseFromFarAway(t *testing.T) {
	play(t, func(f field) {
		f.nodes.SetVersion("Redis 8.6.3")
		trip := plainly(250 * ms)
		far := f.as(f.from(trip, trip, trip, trip, trip))
		for range 3 {
			m := far.locks(patient()...)
			got := make(chan error, 1)
			go func() {
				w := f.NewMutex("lock", patient()...)
				err := w.Lock()
				_, unlocked := w.Unlock()
				got <- errors.Join(err, unlocked)
			}()
			time.Sleep(sec)
			far.unlock(m)
			noError(t, <-got)
			far.unlock(far.locks(patient()...))
		}
		assert.Positive(t, f.deletions())
		time.Sleep(3 * sec)
		f.noKeys()
	})
}
