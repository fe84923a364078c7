package safety

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// PlayEmbedded plays s on embedded nodes in virtual time. If the library leaves a goroutine
// behind, t fails.
func PlayEmbedded(t *testing.T, open Open, s Scene) (err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		nodes := &embeddedNodes{Nodes: embedded.Start(N)}
		e := NewEnv(nodes, nodes.Nodes, open)
		err = s.Play(e)
		e.Close()
		nodes.close()
		// Wait for goroutines that end by themselves: go-redis checks once a second whether a
		// pool that could not dial has been closed.
		time.Sleep(time.Minute)
	})
	return err
}

// PlayReal plays s on redis-server processes. It skips t if there is no redis-server, or if the
// scene needs embedded nodes.
func PlayReal(t *testing.T, open Open, s Scene) error {
	t.Helper()
	if s.Embedded {
		t.Skip("needs faults that only embedded nodes can play, or exact times")
	}
	e := NewEnv(&realNodes{t: t, servers: realredis.Start(t, N)}, nil, open)
	defer e.Close()
	return s.Play(e)
}

// embeddedNodes adapts embedded.Nodes.
type embeddedNodes struct {
	embedded.Nodes
	clients []*redis.Client
}

func (n *embeddedNodes) Freeze(i int) { n.Nodes[i].Freeze() }
func (n *embeddedNodes) Thaw(i int)   { n.Nodes[i].Thaw() }
func (n *embeddedNodes) Kill(i int)   { n.Nodes[i].Kill() }
func (n *embeddedNodes) Restart(i int) {
	n.Nodes[i].Restart(true)
}

func (n *embeddedNodes) Get(i int, key string) string {
	value, _ := n.Nodes[i].Get(key) // an error means that the key is missing
	return value
}

func (n *embeddedNodes) Set(i int, key, value string, ttl time.Duration) {
	_ = n.Nodes[i].Set(key, value) // fails for keys of another type only
	n.Nodes[i].SetTTL(key, ttl)
}

func (n *embeddedNodes) Delete(i int, key string) { n.Nodes[i].Del(key) }

func (n *embeddedNodes) Client(i int) *redis.Client {
	c := n.Nodes[i].Client()
	n.clients = append(n.clients, c)
	return c
}

func (n *embeddedNodes) close() {
	for _, c := range n.clients {
		_ = c.Close()
	}
	n.Nodes.Close()
}

// realNodes adapts realredis servers.
type realNodes struct {
	t       *testing.T
	servers []*realredis.Server
}

func (n *realNodes) Freeze(i int)  { n.servers[i].Freeze() }
func (n *realNodes) Thaw(i int)    { n.servers[i].Thaw() }
func (n *realNodes) Kill(i int)    { n.servers[i].Kill() }
func (n *realNodes) Restart(i int) { n.servers[i].Restart() }

func (n *realNodes) Get(i int, key string) string {
	value, _ := n.servers[i].Do("get", key) // redis.Nil if the key is missing
	text, _ := value.(string)
	return text
}

func (n *realNodes) Set(i int, key, value string, ttl time.Duration) {
	if _, err := n.servers[i].Do("set", key, value, "px", ttl.Milliseconds()); err != nil {
		n.t.Error(err)
	}
}

func (n *realNodes) Delete(i int, key string) {
	if _, err := n.servers[i].Do("del", key); err != nil {
		n.t.Error(err)
	}
}

func (n *realNodes) Client(i int) *redis.Client { return n.servers[i].Client() }
