package pool

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A queue holds what a stream has been sent and no connection has taken yet, and counts
// what the node owes. The stream puts requests in; its connections, one after another,
// take them out.
//
// A request waits here until a connection takes it. From then on a byte of it may have
// left, and its fate is that of the connection: answered, or Unknown. What is still here
// when a connection ends has not been sent, and goes out on the next one, or is NotSent
// when there is none to be had. So a request is written at most once.
type queue struct {
	mu            sync.Mutex    // guards what follows, up to quiet
	requests      []queued      // in order
	encoded       []byte        // these as RESP
	within        time.Duration // the least Within of these
	stopped       atomic.Bool   // the stream has ended: nothing is taken in any more
	ending        bool          // the stream stops at the next quiet moment
	openingSecond bool          // a connection is being opened beside the one in use
	quiet         time.Time     // when replies were delivered last

	// owed counts the requests whose reply is not being delivered yet. It rises
	// under mu.
	owed atomic.Int64

	// wake holds a token when the stream, or the connection that it waits for, may have
	// something to do.
	wake chan struct{}
}

// queued is a request without its command.
type queued struct {
	to   Receiver
	tag  int
	view *serverView // of the pool whose request it is
}

var errStopped = errors.New("pool: stream stopped")

// submit puts a request behind the others, unless the node owes limit replies already. view
// is that of the pool whose request it is.
func (q *queue) submit(req *Request, limit int, view *serverView) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped.Load() {
		return errStopped
	}
	if err := admit(int(q.owed.Load()), limit, req.Reserved); err != nil {
		return err
	}
	before := len(q.requests)
	if req.asking {
		q.encoded = append(q.encoded, "*1\r\n$6\r\nASKING\r\n"...)
		q.requests = append(q.requests, queued{ignored{}, 0, view})
		q.owed.Add(1)
	}
	if err := q.encode(req); err != nil {
		return err
	}
	q.owed.Add(1)
	q.within = sooner(q.within, req.Within)
	q.requests = append(q.requests, queued{req.To, req.Tag, view})
	if before == 0 {
		q.nudge()
	}
	return nil
}

// ignored is the Receiver of the answers to ASKING.
type ignored struct{}

func (ignored) Receive(int, Reply) {}

func (q *queue) encode(req *Request) (err error) {
	if len(req.RESP) > 0 {
		q.encoded = append(q.encoded, req.RESP...)
		return nil
	}
	q.encoded, err = AppendCommand(q.encoded, req.Args)
	return err
}

// sooner returns the smaller of two durations, where 0 stands for none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// finish makes the stream end once nothing is outstanding.
func (q *queue) finish() {
	q.mu.Lock()
	q.ending = true
	q.mu.Unlock()
	q.nudge()
}

// fail delivers the same reply to requests that got no answer.
func (q *queue) fail(requests []queued, r Reply) {
	for _, req := range requests {
		q.owed.Add(-1)
		req.to.Receive(req.tag, r)
	}
	q.mu.Lock()
	q.quiet = time.Now()
	q.mu.Unlock()
}
