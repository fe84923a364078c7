package wire

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A queue holds the requests of a stream that no connection has taken yet, and counts the replies
// that the node owes. Pools put requests in; the connections of the stream, one after another,
// take them out.
//
// Once a connection has taken a request, a byte of it may have been sent, and the request is
// either answered on that connection or its Fate is Unknown. Requests still queued when a
// connection ends have not been sent. They go out on the next connection, or get NotSent if none
// can be opened. So a request is written at most once.
type queue struct {
	mu            sync.Mutex    // guards what follows, up to quiet
	requests      []queued      // in order
	encoded       []byte        // the encoding of requests
	within        time.Duration // the least Within of requests
	stopped       atomic.Bool   // the stream has ended, and submit refuses requests
	ending        bool          // the stream stops once nothing is outstanding
	openingSecond bool          // a search for a connection beside the one in use is going on
	quiet         time.Time     // when replies were delivered last
	elsewhere     string        // the address of the next connection, "" for the client's own

	// life ends with the stream, and with ErrClientClosed as its cause once the user has closed the client.
	life context.Context //nolint:containedctx // of the connections

	distance distance                 // of the node
	opening  atomic.Pointer[progress] // of a stream without a connection that opens one; otherwise nil

	identified atomic.Bool // a pool wants to know which server answers
	connected  atomic.Bool // a connection has been opened, or tried

	// cutAtScripts is when a connection last ended in place of the answer to SCRIPT LOAD.
	cutAtScripts atomic.Pointer[time.Time]

	migrated func() // called when the slots of a cluster's node have moved
	share    *share // what the node serves; nil if the user's client has other nodes, too, and knows which one has a key

	// owed counts the requests whose Receive has not been called yet. It is raised under mu only.
	owed atomic.Int64

	// wake holds a token when the stream, or the connection that it waits for, may have work to
	// do.
	wake chan struct{}
}

// queued is what remains of a request after its command was encoded.
type queued struct {
	to   Receiver
	tag  int
	view *serverView // of the pool that sent it
	name string      // of the command
}

var errStopped = errors.New("pool: stream stopped")

// submit queues a request for the pool of view, unless the node already owes limit replies.
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
		q.requests = append(q.requests, queued{ignored{}, 0, view, "asking"})
		q.owed.Add(1)
	}
	if err := q.encode(req); err != nil {
		return err
	}
	q.owed.Add(1)
	q.within = sooner(q.within, req.Within)
	name, _ := req.Args[0].(string)
	q.requests = append(q.requests, queued{req.To, req.Tag, view, name})
	if before == 0 {
		q.nudge()
	}
	return nil
}

// ignored receives the answers to ASKING.
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

// severed reports whether the user has closed the client.
func (q *queue) severed() bool {
	return context.Cause(q.life) == ErrClientClosed //nolint:errorlint // a sentinel
}

// sooner returns the smaller of two durations. 0 means no duration.
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

// scriptsAgain is how long no connection loads scripts after one has ended at that. They are sent in full meanwhile. The end
// may have been a coincidence, or the proxy may be another one later.
const scriptsAgain = time.Minute

// loadsScripts reports whether the next connection is to load scripts.
func (q *queue) loadsScripts() bool {
	at := q.cutAtScripts.Load()
	return at == nil || time.Since(*at) >= scriptsAgain
}

// finish makes the stream end once nothing is outstanding.
func (q *queue) finish() {
	q.mu.Lock()
	q.ending = true
	q.mu.Unlock()
	q.nudge()
}

// fail delivers r to each of requests, none of which has an answer.
func (q *queue) fail(requests []queued, r Reply) {
	for _, req := range requests {
		q.owed.Add(-1)
		req.to.Receive(req.tag, r)
	}
	q.mu.Lock()
	q.quiet = time.Now()
	q.mu.Unlock()
}

// redirect makes to the address of the next connection.
func (q *queue) redirect(to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.elsewhere = to
}

// destination returns the address of the next connection, "" for the client's own.
func (q *queue) destination() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.elsewhere
}

// tried makes later connections lead to the client's own address, unless the attempt to connect to at was cancelled.
func (q *queue) tried(ctx context.Context, at string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.elsewhere == at && ctx.Err() == nil {
		q.elsewhere = ""
	}
}
