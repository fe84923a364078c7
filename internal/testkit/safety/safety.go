// Package safety holds scenes that check what a quorum lock on five nodes must never do. They can
// run with any library that has the API of redsync v4, on embedded nodes in virtual time and on
// real servers.
package safety

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// A Mutex is the part of a lock that the scenes use.
type Mutex interface {
	LockContext(ctx context.Context) error
	TryLockContext(ctx context.Context) error
	UnlockContext(ctx context.Context) (bool, error)
	ExtendContext(ctx context.Context) (bool, error)
	ValidContext(ctx context.Context) (bool, error)
	Until() time.Time
	Value() string
}

// Options are the options that the scenes set. Zero values mean the library's default.
type Options struct {
	Expiry     time.Duration
	Tries      int
	RetryDelay time.Duration
	Value      string // WithValue
	Generated  string // WithGenValueFunc: each attempt gets this value
	Heal       bool   // WithSetNXOnExtend
}

// A Library is the library under test, as one process uses it.
type Library interface {
	// NewMutex returns a lock on the nodes of Open.
	NewMutex(name string, o Options) Mutex
	// Close ends what Open started.
	Close()
}

// Open returns the library on five nodes. clients holds one client for each node.
type Open func(clients []*redis.Client) Library

// Nodes are five independent nodes that fail on request.
type Nodes interface {
	Freeze(i int)                 // stops execution; connections stay
	Thaw(i int)                   // ends a Freeze
	Kill(i int)                   // ends connections and refuses new ones
	Restart(i int)                // accepts connections again, without data
	Get(i int, key string) string // "" when missing
	Set(i int, key, value string, ttl time.Duration)
	Delete(i int, key string)
	Client(i int) *redis.Client // returns a new client; it is closed together with the nodes
}

// N is the number of nodes of every scene.
const N = 5

// Quorum is the number of nodes that a decision needs.
const Quorum = N/2 + 1

// An Env is the environment of a scene.
type Env struct {
	Nodes
	// Embedded gives access to faults that only embedded nodes can play; nil on
	// real servers.
	Embedded embedded.Nodes

	open      Open
	libraries []Library
}

// NewEnv returns the environment of one scene.
func NewEnv(nodes Nodes, faults embedded.Nodes, open Open) *Env {
	return &Env{Nodes: nodes, Embedded: faults, open: open}
}

// Process returns the library as a new process uses it, with connections of its own.
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

// Holding counts the nodes that hold key, with any value.
func (e *Env) Holding(key string) int {
	count := 0
	for i := range N {
		if e.Get(i, key) != "" {
			count++
		}
	}
	return count
}

// Soon is how long what happens at once in virtual time may take on real servers. It is less than any timeout that a
// library might wait for.
func (e *Env) Soon() time.Duration {
	if e.Embedded != nil {
		return 0
	}
	return 3 * time.Second
}

// brief scales d, which is an expiry or a pause: it returns d in virtual time. On real servers it
// returns ten times d, because a slow machine may need more time.
func (e *Env) brief(d time.Duration) time.Duration {
	if e.Embedded != nil {
		return d
	}
	return 10 * d
}

// Gone waits until no node holds key, for at most within, plus Soon on real servers. If nodes still
// hold the key after that, it returns an error that names them.
func (e *Env) Gone(key string, within time.Duration) error {
	if e.Embedded == nil {
		within += e.Soon()
	}
	time.Sleep(10 * time.Millisecond) // let requests under way arrive
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

// took runs f and returns an error when it took time. On real servers, in real time, it only finds what hangs.
func (e *Env) took(what string, f func()) error {
	limit := time.Duration(0)
	if e.Embedded == nil {
		limit = time.Minute
	}
	return within(what, limit, f)
}

// A Scene plays one situation and returns an error if the library breaks its promise.
type Scene struct {
	Name string
	// Embedded: the scene needs faults that only embedded nodes can play, or
	// exact times.
	Embedded bool
	Play     func(e *Env) error
}

// within runs f and returns an error when it took longer than limit.
func within(what string, limit time.Duration, f func()) error {
	start := time.Now()
	f()
	if took := time.Since(start); took > limit {
		return fmt.Errorf("%s took %v, want at most %v", what, took, limit)
	}
	return nil
}
