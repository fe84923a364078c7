package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// This file opens connections while the node is silent. A stopped machine sends no FIN, and its kernel may even accept
// connections. Meanwhile the name of the node may have moved (DNS, Sentinel, a proxy). So tries follow each other, and
// each dial resolves the name anew. A try should end soon, but a far node with TLS needs a second. So:
//
//   - A try ends once it has seen no sign of life for one pace. The end of the dial is a sign, and so is each reply of
//     the greeting.
//   - The pace is at least twice the longest wait for a sign when the stream last opened a connection.
//   - While the stream has no connection, the first try goes on beside the others: the node may be far.
//
// One try runs at a time. But a dial that ignores its context, as that of go-redis's Sentinel client with TLS, is
// overtaken by the next.

const (
	// minPace is the shortest time without a sign of life that ends a try.
	minPace = 250 * time.Millisecond

	// maxPace is the pace where nothing is known of the node, or tries do no good.
	maxPace = 450 * time.Millisecond

	// maxFar is the longest wait that distance explains: four trips of 250 ms. A longer one was a stall.
	maxFar = time.Second

	// lastWord is how long a try that was given up has to end before the next one overtakes it.
	lastWord = 20 * time.Millisecond

	// maxOvertaken is how many dials that ignore their context may hang. If each takes 5 s, maxPace is kept.
	maxOvertaken = 11

	// lastLook lets the first connection read what has arrived before a second one replaces it. It is also the pause after
	// a try, so that the node sees its end first.
	lastLook = time.Millisecond
)

var errAbandoned = errors.New("pool: the goroutine that connects has been ended")

// An opener opens a connection, and calls sign at each sign of life. The end of ctx closes it. T
// keeps this file free of conn.
type opener[T any] func(ctx context.Context, sign func()) (T, error)

// A try opens one connection, in a goroutine of its own, because a user's Dialer may hang.
type try[T any] struct {
	cancel context.CancelFunc // ends the try, and the connection that it has opened
	done   chan struct{}      // closed once opened and err are set
	opened T
	err    error

	began   time.Time
	given   chan struct{} // signs of life of the node
	last    atomic.Int64  // the last one, counted from began
	longest time.Duration // the longest wait for one; read when the try has ended
}

func (open opener[T]) begin(ctx context.Context) *try[T] {
	t := &try[T]{began: time.Now(), given: make(chan struct{}, 1), done: make(chan struct{}), err: errAbandoned}
	ctx, t.cancel = context.WithCancel(ctx) //nolint:gosec // the user of the try calls it
	go func() {
		defer close(t.done) // also if a Dialer ends this goroutine
		t.opened, t.err = open(ctx, t.sign)
	}()
	return t
}

func (t *try[T]) sign() {
	now := int64(time.Since(t.began))
	t.longest = max(t.longest, time.Duration(now-t.last.Swap(now)))
	select {
	case t.given <- struct{}{}:
	default:
	}
}

// A signingConn calls sign for each read that returns something.
type signingConn struct {
	net.Conn
	sign func()
}

func (c signingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sign()
	}
	return n, err
}

// A distance is the longest wait for a sign while the last connection was opened, or 0.
type distance struct{ atomic.Int64 }

func (d *distance) learn(longest time.Duration) { d.Store(int64(max(min(longest, maxFar), 1))) }

func (d *distance) pace(atLeast time.Duration) time.Duration {
	return max(atLeast, 2*time.Duration(d.Load()))
}

// outlive waits until t has ended, and reports true, or has been silent for pace.
func (t *try[T]) outlive(pace time.Duration) bool {
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for {
		select {
		case <-t.done:
			return true
		case <-timer.C:
		}
		left := pace - (time.Since(t.began) - time.Duration(t.last.Load()))
		if left <= 0 {
			return false
		}
		timer.Reset(left)
	}
}

func (t *try[T]) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// A search opens connections one after another until one is open.
type search[T any] struct {
	open      opener[T]
	distance  *distance
	pace      time.Duration
	overtaken []*try[T] // given up, not known to have ended, in order
}

// run returns the first connection that a try has opened, none if ctx has ended. A try begins one pace after the last
// one, or when that is given up.
func (s *search[T]) run(ctx context.Context) (opened T) {
	for ctx.Err() == nil {
		t := s.open.begin(ctx)
		if t.outlive(s.pace) && t.err == nil {
			s.distance.learn(t.longest)
			return t.opened
		}
		t.cancel()
		s.overtake(ctx, t)
		pause := s.pace - time.Since(t.began)
		if t.ended() && errors.Is(t.err, errMoved) {
			pause = 0 // to the node that the client uses now
		}
		sleep(ctx, max(lastLook, pause))
	}
	return opened
}

// overtake waits until t, which was given up, has ended, or else for room for another try.
func (s *search[T]) overtake(ctx context.Context, t *try[T]) {
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case <-t.done:
		return
	case <-timer.C:
	}
	s.pace = max(s.pace, maxPace)
	s.overtaken = append(slices.DeleteFunc(s.overtaken, (*try[T]).ended), t)
	if len(s.overtaken) >= maxOvertaken {
		select {
		case <-s.overtaken[0].done:
		case <-ctx.Done():
		}
	}
}

func (s *search[T]) wait() {
	for _, t := range s.overtaken {
		<-t.done
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
