// Package safety holds what a quorum lock on five nodes must never do, as scenes
// that any library with the API of redsync v4 can be put through: on embedded
// nodes in virtual time, and on real servers.
package safety

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// A Mutex is what the scenes use of a lock.
type Mutex interface {
	LockContext(ctx context.Context) error
	TryLockContext(ctx context.Context) error
	UnlockContext(ctx context.Context) (bool, error)
	ExtendContext(ctx context.Context) (bool, error)
	ValidContext(ctx context.Context) (bool, error)
	Until() time.Time
	Value() string
}

// Options are what the scenes set. Zero values stand for the library's default.
type Options struct {
	Expiry     time.Duration
	Tries      int
	RetryDelay time.Duration
	Value      string // WithValue
	Heal       bool   // WithSetNXOnExtend
}

// A Library is put through the scenes.
type Library interface {
	// NewMutex returns a lock on the nodes of Open.
	NewMutex(name string, o Options) Mutex
	// Close ends what Open started.
	Close()
}

// Open returns the library on the nodes behind clients, one each.
type Open func(clients []*redis.Client) Library

// Nodes are what a scene runs on: five independent nodes that fail on request.
type Nodes interface {
	Freeze(i int)                 // stops execution; connections stay
	Thaw(i int)                   // ends that
	Kill(i int)                   // ends connections and refuses new ones
	Restart(i int)                // accepts connections again, without data
	Get(i int, key string) string // "" when missing
	Set(i int, key, value string, ttl time.Duration)
	Delete(i int, key string)
	Client(i int) *redis.Client // a new one; the nodes close it
}

// N is the number of nodes of every scene.
const N = 5

// Quorum is how many of them a decision needs.
const Quorum = N/2 + 1

// An Env is a scene's surroundings.
type Env struct {
	Nodes
	// Embedded gives access to faults that only embedded nodes can play; nil on
	// real servers.
	Embedded embedded.Nodes

	open      Open
	libraries []Library
}

// NewEnv returns surroundings for one scene.
func NewEnv(nodes Nodes, faults embedded.Nodes, open Open) *Env {
	return &Env{Nodes: nodes, Embedded: faults, open: open}
}

// Process returns the library as one process uses it: with connections of its
// own.
func (e *Env) Process() Library {
	clients := make([]*redis.Client, N)
	for i := range clients {
		clients[i] = e.Nodes.Client(i)
	}
	l := e.open(clients)
	e.libraries = append(e.libraries, l)
	return l
}

// Close ends all libraries of the scene.
func (e *Env) Close() {
	for _, l := range e.libraries {
		l.Close()
	}
}

// Holding counts the nodes that hold key, with whatever value.
func (e *Env) Holding(key string) int {
	count := 0
	for i := range N {
		if e.Get(i, key) != "" {
			count++
		}
	}
	return count
}

// Soon is how long something may take that needs no waiting: nothing in virtual
// time, and on real servers less than any timeout that a library might have
// waited for instead.
func (e *Env) Soon() time.Duration {
	if e.Embedded != nil {
		return 0
	}
	return 3 * time.Second
}

// brief is a time of a scene that waits for the end of an expiry: d in virtual time, and
// on real servers long enough for what a slow machine does meanwhile.
func (e *Env) brief(d time.Duration) time.Duration {
	if e.Embedded != nil {
		return d
	}
	return 10 * d
}

// Gone waits until no node holds key, for at most within, and returns an error
// that names the nodes that still do.
func (e *Env) Gone(key string, within time.Duration) error {
	if e.Embedded == nil {
		within += e.Soon()
	}
	time.Sleep(10 * time.Millisecond) // what is under way arrives
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		if e.Holding(key) == 0 {
			return nil
		}
		if !time.Now().Before(end) {
			break
		}
	}
	var nodes []int
	for i := range N {
		if e.Get(i, key) != "" {
			nodes = append(nodes, i)
		}
	}
	return fmt.Errorf("key left behind on nodes %v, %v later", nodes, within)
}

// took runs f and returns an error when it took longer than Soon.
func (e *Env) took(what string, f func()) error {
	start := time.Now()
	f()
	if took := time.Since(start); took > e.Soon() {
		return fmt.Errorf("%s took %v, want at most %v", what, took, e.Soon())
	}
	return nil
}

// A Scene plays one thing that happens to users and returns an error when the
// library breaks its promise in it.
type Scene struct {
	Name string
	// Embedded: the scene needs faults that only embedded nodes can play, or
	// exact times.
	Embedded bool
	Play     func(e *Env) error
}
