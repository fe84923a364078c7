package script

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// slotless reports whether no side key can share a slot with the name.
func slotless(name string) bool {
	return strings.Contains(name, "}") && hashed(name) == name
}

// hashed returns the part of a key that Redis Cluster hashes, according to its specification.
func hashed(key string) string {
	open := strings.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	length := strings.IndexByte(key[open+1:], '}')
	if length <= 0 {
		return key
	}
	return key[open+1 : open+1+length]
}

// names are lock names, and what their side keys begin with.
var names = map[string]string{
	"b":         "{b}",
	"{b}":       "{b}:{b}",
	"x{b}y":     "{b}:x{b}y",
	"x{b}y{c}":  "{b}:x{b}y{c}",
	"{b":        "{{b}",
	"a{":        "{a{}",
	"{{b}}":     "{{b}:{{b}}",
	"{b}:slot":  "{b}:{b}:slot",
	"{b}:slots": "", // reserved
	"{b}:queue": "", // reserved
	"a:b":       "{a:b}",
	":queue":    "{:queue}",
	"queue":     "{queue}",
	"日本":        "{日本}",
	" ":         "{ }",
}

func TestSideKeysBeginWithTheHashTag(t *testing.T) {
	for name, base := range names {
		if base == "" {
			continue
		}
		assert.Equal(t, base+":queue", QueueKey(name))
		assert.Equal(t, base+":fence", FenceKey(name))
		assert.Equal(t, base+":slots", SlotQueueKey(name))
		s := NewSemaphore(name, 2)
		assert.Equal(t, base+":slots", s.Queue())
		for i, key := range []string{":slot:0", ":slot:1", ":slot:2"} {
			assert.Equal(t, base+key, s.Keys(slotsOf(i))[0], "the last is beyond the semaphore")
			assert.Equal(t, base+":slots", LineOf(base+key))
		}
	}
}

// Only the key of a slot belongs to a line with another name.
func TestLineOf(t *testing.T) {
	for key, want := range map[string]string{
		"{b}:slot:0":                      "{b}:slots",
		"{b}:slot:255":                    "{b}:slots",
		"{b}:slot:1000":                   "{b}:slots",
		"{}:a}b:slot:7":                   "{}:a}b:slots",
		"{b}:x{b}y:slot:7":                "{b}:x{b}y:slots",
		"{b:slot:1}:slot:7":               "{b:slot:1}:slots",
		"{b}:slot:00":                     "",
		"{b}:slot:01":                     "",
		"{b}:slot:-1":                     "",
		"{b}:slot:+1":                     "",
		"{b}:slot:":                       "",
		"{b}:slot:x":                      "",
		"{b}:slot:1 ":                     "",
		"{b}:slot:1:slot":                 "",
		"{b}:slot:9999999999999999999999": "",
		"b:slot:0":                        "",
		":slot:0":                         "",
		"{b}x:slot:0":                     "",
		"{b}:slots":                       "",
		"{b}:queue":                       "",
		"b":                               "",
		"":                                "",
	} {
		if want == "" {
			want = key
		}
		assert.Equal(t, want, LineOf(key), key)
	}
}

func TestReservedNames(t *testing.T) {
	for name, want := range map[string]string{
		"{b}:queue":       ":queue",
		"{b}:fence":       ":fence",
		"{}:queue":        ":queue",
		"{b}:{b}:queue":   ":queue",
		"{b}:x{b}y:fence": ":fence",
		"{{}x}:queue":     ":queue",
		"{a}b}:queue":     ":queue",
		"b:queue":         "",
		"b}:queue":        "",
		"{b:queue":        "",
		":queue":          "",
		"queue":           "",
		"x{b}:queue":      "",
		"{b}x:queue":      "",
		"{b}:queues":      "",
		"{b}:{c}:queue":   ":queue",
		"{}:b}:queue":     ":queue",
		"{b}:c:queue":     "",
		"{}:{}:queue":     ":queue",
		"{b}:queue:":      "",
		"{b}":             "",
		"{b}:queue:x":     "",
		"":                "",
		"{b}:fence:b":     "",
		"x{b}:{b}:fence":  "",

		"{b}:slots":         ":slots",
		"{b}:{b}:slots":     ":slots",
		"{b}:slot:0":        ":slot:0",
		"{b}:slot:255":      ":slot:255",
		"{b}:slot:256":      ":slot:256",
		"{}:a}b:slot:3":     ":slot:3",
		"{b:slot:1}:slot:2": ":slot:2",
		"{b}:slot:01":       "",
		"{b}:slot:-1":       "",
		"{b}:slot:x":        "",
		"{b}:slot:":         "",
		"{b}:slot":          "",
		"{b}:slot:0:":       "",
		"{b}:slot:queue":    "",
		"b:slot:0":          "",
		"slots":             "",
	} {
		assert.Equal(t, want, Reserved(name), name)
	}
}

// beside returns all side keys of a name.
func beside(name string) []string {
	keys := []string{QueueKey(name), FenceKey(name), SlotQueueKey(name)}
	s := NewSemaphore(name, 0)
	for _, slot := range []int{0, 1, 10, MaxPermits - 1} {
		keys = append(keys, s.key(slot).(string))
	}
	return keys
}

// allowed reports whether a lock may have the name.
func allowed(name string) bool { return name != "" && Reserved(name) == "" }

func FuzzSideKeys(f *testing.F) {
	for name := range names {
		f.Add(name, "{"+name+"}")
	}
	for _, side := range []string{":slot", ":slot:", ":slots", ":slot:0", ":slot:queue", ":slot:queue:slot"} {
		f.Add("{b}", "{b}"+side)
		f.Add("b", "{b}"+side)
		f.Add("a}b", "{}:a}b"+side)
	}
	f.Add("{b}", "b}:{b")
	f.Add("a}b", "{}x")
	f.Add("{}:x", "}:x")
	f.Add("{}", "}")
	f.Fuzz(func(t *testing.T, a, b string) {
		if !allowed(a) || !allowed(b) {
			return
		}
		for _, name := range []string{a, b} {
			for _, key := range beside(name) {
				if allowed(key) {
					t.Errorf("%q is a side key of %q, and a name that is allowed", key, name)
				}
				if !slotless(name) && hashed(key) != hashed(name) {
					t.Errorf("%q is not in the slot of %q", key, name)
				}
			}
		}
		if slot := NewSemaphore(a, 1).key(7).(string); LineOf(slot) != SlotQueueKey(a) {
			t.Errorf("%q stands for %q", slot, LineOf(slot))
		}
		for _, key := range beside(a) {
			if a != b && slices.Contains(beside(b), key) {
				t.Errorf("%q is a side key of %q and of %q", key, a, b)
			}
		}
	})
}

func TestSideKeysAreInTheSlotOfTheLock(t *testing.T) {
	server := realredis.Start(t, 1, "--cluster-enabled", "yes")[0]
	slot := func(key string) any {
		v, err := server.Do("cluster", "keyslot", key)
		require.NoError(t, err)
		return v
	}
	for name := range names {
		for _, key := range beside(name) {
			assert.Equal(t, slot(name), slot(key), key)
		}
	}
	for _, name := range []string{"a}b", "{}x", "{}", "}"} {
		require.True(t, slotless(name))
		assert.NotEqual(t, slot(name), slot(beside(name)[0]), "%q has side keys in its slot: say so", name)
	}
}

func TestChannelIsOfTheProcess(t *testing.T) {
	assert.Equal(t, "redsync:p", ProcessOf("p").Channel())
}

// Many locks are used once. Only the second command keeps the key of the queue.
func TestSideKeyIsKeptFromTheSecondCommandOn(t *testing.T) {
	k := KeysOf("lock")
	for n := range 3 {
		kept := k.queue.key.Load()
		assert.Equal(t, n > 1, kept != nil && kept != &named, "after %d commands", n)
		Release(k.Lock("v"), noProcess, noTurn, noFence)
	}
}

func TestEachAcquireHasItsOwnTTL(t *testing.T) {
	lock := lockV
	var wg sync.WaitGroup
	for ttl := range int64(4) {
		wg.Go(func() {
			for range 100 {
				args := Acquire(lock, ttl).Args
				assert.Equal(t, []any{"set", "lock", "v", "nx", "px", ttl}, args)
			}
		})
	}
	wg.Wait()
}

// All commands of a lock have the same key of the queue: the first, which does not keep it, and those that run at the
// moment when it is kept.
func TestSideKeyIsTheSameForAllCommands(t *testing.T) {
	for range 100 {
		k := KeysOf("a")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 3 {
					c := Release(k.Lock("v"), noProcess, noTurn, noFence)
					assert.Equal(t, QueueKey("a"), c.Args[4])
				}
			})
		}
		all.Wait()
	}
}

// The channel of leaders is in the slot of the lock's own keys.
func TestLeaderChannelHasTheTagOfTheName(t *testing.T) {
	for name, want := range map[string]string{
		"a": "redsync:{a}:leader", "{a}": "redsync:{a}:{a}:leader", "{a}b": "redsync:{a}:{a}b:leader", "a}b": "redsync:{}:a}b:leader",
	} {
		if got := LeaderChannel(name); got != want {
			t.Errorf("LeaderChannel(%q) = %q, want %q", name, got, want)
		}
	}
}
