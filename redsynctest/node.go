package redsynctest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Node is one of the Redis nodes. A method returns once it has taken effect, and fails the test if it cannot.
// A process whose connection broke reconnects by itself when it next uses the node, within about a second.
type Node struct {
	set    *Nodes
	index  int
	server server

	mu     sync.Mutex // guards state and faulty, and lets one method run at a time
	state  state
	faulty bool // the node has had a fault

	lateMu sync.Mutex
	late   time.Duration // how late the node's answers are
	moved  chan struct{} // closed when late changes

	losing atomic.Int64 // how many more replies to lose
	open   atomic.Int64 // how many connections of processes are open
}

// A state is what a node does with requests.
type state string

const (
	up     state = ""
	frozen state = "frozen"
	down   state = "down"
)

// A server is what a Node runs on.
type server interface {
	addr() string
	dial(ctx context.Context, network, addr string) (net.Conn, error)
	freeze()
	thaw()
	kill()
	restart(empty bool) error // after kill
	advance(d time.Duration) error
	close()
}

// Down stops the node: its connections break, and new ones are refused. It keeps its keys until Up.
func (n *Node) Down() {
	n.set.t.Helper()
	n.try("Down", func() error {
		n.kill()
		return nil
	})
}

// Up starts a node that is down, with the keys that it had, except those that have run out. On a node that is
// not down it does nothing.
func (n *Node) Up() {
	n.set.t.Helper()
	n.try("Up", func() error {
		if n.state != down {
			return nil
		}
		return n.restart(false)
	})
}

// Restart stops the node and starts it again. If empty is true, the node then has no keys.
// Otherwise it has the same keys as after Down and Up.
func (n *Node) Restart(empty bool) {
	n.set.t.Helper()
	n.try("Restart", func() error {
		n.kill()
		return n.restart(empty)
	})
}

// kill stops the node.
func (n *Node) kill() {
	n.faulty = true
	if n.state != down {
		n.server.kill()
		n.state = down
	}
}

// restart starts the node, which is down.
func (n *Node) restart(empty bool) error {
	if err := n.server.restart(empty); err != nil {
		return err
	}
	n.state = up
	return nil
}

// Freeze makes the node answer nothing, as SIGSTOP does: connections stay open, and requests pile up until
// Thaw. It fails if the node is down.
func (n *Node) Freeze() {
	n.set.t.Helper()
	n.try("Freeze", func() error {
		if n.state == down {
			return errors.New("the node is down")
		}
		n.faulty = true
		n.server.freeze()
		n.state = frozen
		return nil
	})
}

// Thaw ends Freeze: the node executes the requests that have piled up. On a node that is not frozen it does
// nothing.
func (n *Node) Thaw() {
	n.set.t.Helper()
	n.try("Thaw", func() error {
		if n.state == frozen {
			n.server.thaw()
			n.state = up
		}
		return nil
	})
}

// Delay makes the node's answers to locks come d late, also those that are under way. d must be 0 or more; 0
// ends the delay. The node still executes each request at once. Opening a connection takes no longer than
// before, and wake-ups are not late.
func (n *Node) Delay(d time.Duration) {
	n.set.t.Helper()
	n.try("Delay", func() error {
		if d < 0 {
			return fmt.Errorf("the duration must be 0 or more, not %v", d)
		}
		n.faulty = n.faulty || d > 0
		n.setLateness(d)
		return nil
	})
}

// LoseReply loses the reply to the next request of a lock: the node executes the request, and the connection
// breaks instead of bringing the answer. The process cannot know whether the request was executed. A second
// call loses the reply to the request after that, and so on. The process also loses all other replies that
// were still to come on this connection, for example to requests of other locks.
//
// A call that would fail for lost replies asks these nodes once more, unless it releases. So it takes two calls of
// LoseReply on a quorum of the nodes to make a Lock fail.
func (n *Node) LoseReply() {
	n.set.t.Helper()
	n.try("LoseReply", func() error {
		n.faulty = true
		n.losing.Add(1)
		return nil
	})
}

// try runs do, the body of the method, while it holds n.mu. It fails the test if do returns an error, or if the
// nodes are closed.
func (n *Node) try(method string, do func() error) {
	n.set.t.Helper()
	err := n.set.usable()
	if err == nil {
		n.mu.Lock()
		err = do()
		n.mu.Unlock()
	}
	if err != nil {
		n.set.t.Fatalf("redsynctest: Node(%d).%s: %v", n.index, method, err)
	}
}

// calm ends Freeze, Delay and LoseReply, and reports whether the node has ever had a fault.
func (n *Node) calm() (faulty bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == frozen {
		n.server.thaw()
		n.state = up
	}
	n.setLateness(0)
	n.losing.Store(0)
	return n.faulty
}

func (n *Node) neverFaulty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.faulty
}

// String names the node as errors of the library do.
func (n *Node) String() string { return fmt.Sprintf("node #%d (%s)", n.index, n.server.addr()) }

// ask sends a command to the node and returns the answer, nil for a missing key. If the node is not up, ask sends
// nothing and returns nil.
func (n *Node) ask(args ...any) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != up {
		return nil, nil
	}
	return n.askLocked(args...)
}

// askLocked does what ask does. The node must be up, and the caller must hold n.mu.
func (n *Node) askLocked(args ...any) (any, error) {
	c := client(n.server.addr(), n.server.dial)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	answer, err := c.Do(ctx, args...).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%v: %v: %w", n, args[0], err)
	}
	return answer, nil
}

// A dialer opens a connection.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// client returns a client that starts no goroutine of its own.
func client(addr string, dial dialer) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Dialer: dial, ReadTimeout: asking,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
