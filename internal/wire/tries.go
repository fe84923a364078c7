package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// This file opens connections while the node is silent. A machine that has stopped sends no FIN: its connections stay
// open and silent, and its kernel may even accept new ones that nobody greets. Meanwhile the name of the node may have
// moved (DNS, Sentinel, a proxy), and only another dial finds out. So tries follow each other, and each dial resolves
// the name anew.
//
// Two wishes contradict each other. A try should end soon, so that the next one resolves the name again. A try should last
// long, because a far node with TLS needs a second until it has greeted us. Three rules reconcile them:
//
//   - A try may last as long as the node gives signs of life. It ends once it has seen none for one pace: the dial counts
//     as one sign, and so does each reply of the greeting. A stopped machine gives at most the first.
//   - The pace is at least twice the longest wait for a sign when the stream last opened a connection. So a node
//     with a known distance has enough time, also if a Dialer of the user's does all of TLS in one step.
//   - While the stream has no connection, the first try goes on beside the others, however long it takes. Nothing may be known
//     then of how far the node is.
//
// Only one try runs at a time. The exception is a Dialer that ignores its context, as that of go-redis's Sentinel client
// with TLS: a dial that has been given up cannot be stopped, so the next one overtakes it.

const (
	// minPace is the shortest time without a sign of life after which a try makes way for the next one.
	minPace = 250 * time.Millisecond

	// maxPace is the pace where nothing is known of the node, or where tries do no good. With the time that a try needs to
	// end, the next one begins within 500 ms.
	maxPace = 450 * time.Millisecond

	// maxFar is the longest wait for a sign that distance explains: four trips of 250 ms. A longer one was a stall.
	maxFar = time.Second

	// lastWord is how long a try that has been given up has to end before it counts as one that ignores its context.
	lastWord = 20 * time.Millisecond

	// maxOvertaken is how many dials that ignore their context may hang. If each takes 5 s, go-redis's DialTimeout, they
	// do not slow the pace of maxPace.
	maxOvertaken = 11

	// lastLook is the pause between the greeting of a second connection and giving up the first.
	// Meanwhile the first can still read data that has already arrived. It is also the pause after a try, so that the node
	// sees the end of one before it sees the next.
	lastLook = time.Millisecond
)

var errAbandoned = errors.New("pool: the goroutine that connects has been ended")

// An opener opens a connection, and calls sign at each sign of life of the node. The end of ctx closes the connection.
type opener[T any] func(ctx context.Context, sign func()) (T, error)

// A try opens one connection. It runs in a goroutine of its own, because a user's Dialer may hang.
type try[T any] struct {
	signs
	cancel context.CancelFunc // ends the try, and the connection that it has opened
	done   chan struct{}      // closed once opened and err are set
	opened T
	err    error
}

// begin begins a try. The end of ctx ends it, too.
func (open opener[T]) begin(ctx context.Context) *try[T] {
	t := &try[T]{signs: signs{began: time.Now(), given: make(chan struct{}, 1)}, done: make(chan struct{}), err: errAbandoned}
	ctx, t.cancel = context.WithCancel(ctx) //nolint:gosec // the user of the try calls it
	go func() {
		defer close(t.done) // also if a user's Dialer ends this goroutine
		t.opened, t.err = open(ctx, t.sign)
	}()
	return t
}

// signs notes when a node gave signs of life.
type signs struct {
	began   time.Time
	given   chan struct{} // holds a token after a sign
	last    atomic.Int64  // the last sign, counted from began
	longest time.Duration // the longest wait for a sign; to be read when the try has ended
}

// sign notes a sign of life.
func (s *signs) sign() {
	now := int64(time.Since(s.began))
	s.longest = max(s.longest, time.Duration(now-s.last.Swap(now)))
	select {
	case s.given <- struct{}{}:
	default:
	}
}

// silent returns how long there has been no sign of life.
func (s *signs) silent() time.Duration { return time.Since(s.began) - time.Duration(s.last.Load()) }

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

// A distance is the longest that a node gave no sign of life while the last connection to it was opened, 0 if none has been.
type distance struct{ atomic.Int64 }

// learn notes the longest wait for a sign while a connection was opened.
func (d *distance) learn(longest time.Duration) { d.Store(int64(max(min(longest, maxFar), 1))) }

// pace returns how long a try may go without a sign of life, at least atLeast.
func (d *distance) pace(atLeast time.Duration) time.Duration {
	return max(atLeast, 2*time.Duration(d.Load()))
}

// outlive waits until t has ended or has been silent for pace. It reports whether t has ended.
func (t *try[T]) outlive(pace time.Duration) bool {
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for {
		select {
		case <-t.done:
			return true
		case <-timer.C:
		}
		left := pace - t.silent()
		if left <= 0 {
			return false
		}
		timer.Reset(left)
	}
}

// ended reports whether t has ended.
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
	overtaken []*try[T] // given up, and not known to have ended, in order
}

// run returns the first connection that a try has opened, or false at the end of ctx. A try begins one pace
// after the one before began, or when that has been given up.
func (s *search[T]) run(ctx context.Context) (opened T, found bool) {
	for ctx.Err() == nil {
		t := s.open.begin(ctx)
		if t.outlive(s.pace) && t.err == nil {
			s.distance.learn(t.longest)
			return t.opened, true
		}
		t.cancel()
		s.overtake(ctx, t)
		pause := s.pace - time.Since(t.began)
		if t.ended() && errors.Is(t.err, errMoved) {
			pause = 0 // to the node that the client uses now
		}
		sleep(ctx, max(lastLook, pause)) // the node sees the end of one before it sees the next
	}
	return opened, false
}

// overtake returns when t, which has been given up, has ended. If t ignores that, overtake returns when there is room
// for another try.
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

// wait returns when all tries have ended.
func (s *search[T]) wait() {
	for _, t := range s.overtaken {
		<-t.done
	}
}

// sleep waits for d, or until the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
