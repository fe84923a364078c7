package wire

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A queue holds the requests of a stream that no connection has taken yet, and counts the replies that the node owes.
//
// A request that a connection has taken is answered on it, or Unknown. What is still queued when a connection ends goes
// out on the next one, or gets NotSent if none can be opened. So a request is written at most once.
type queue struct {
	user *redis.Client // its connections lead to its node

	mu            sync.Mutex // guards what follows, up to quiet
	requests      []queued
	encoded       []byte        // of requests
	within        time.Duration // the least Within of requests
	stopped       atomic.Bool   // submit refuses requests
	ending        bool          // the stream stops once nothing is outstanding
	openingSecond bool          // a search for a second connection is under way
	quiet         time.Time     // when replies were last delivered

	// life ends with the stream. Its cause is ErrClientClosed if the user has closed the client.
	life context.Context //nolint:containedctx // of the connections

	distance  distance
	opening   atomic.Pointer[progress] // nil if no connection is being opened
	elsewhere atomic.Pointer[string]   // address of the next connection, if not the client's own

	identified atomic.Bool // a pool wants to know which server answers
	named      atomic.Bool // and it goes by the run_id
	connected  atomic.Bool // a connection has been tried

	// cutAtScripts is when a connection last ended in place of the answer to SCRIPT LOAD.
	cutAtScripts atomic.Pointer[time.Time]

	natives natives

	migrated func() // called when a Cluster's slots have moved
	share    *share // nil for a client of several nodes

	// owed counts the requests whose Receive has not been called. It is raised under mu.
	owed atomic.Int64

	// wake holds a token when there may be work to do.
	wake chan struct{}
}

type queued struct {
	to   Receiver
	tag  int
	view *serverView // of the pool that sent it
	name string

	native Native // that it was written as; 0 for none
	of     part   // of a request of two commands
}

type part uint8

const (
	onlyOne part = iota
	firstOfTwo
	secondOfTwo
)

var errStopped = errors.New("pool: stream stopped")

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
		q.addLocked(queued{to: ignored{}, view: view, name: "asking"})
	}
	if err := q.encode(req); err != nil {
		return err
	}
	q.within = sooner(q.within, req.Within)
	name, _ := req.Args[0].(string)
	last := queued{to: req.To, tag: req.Tag, view: view, name: name, native: req.Native}
	if req.Native != 0 {
		q.tryNativeLocked(req.Native)
		last = q.addNativeLocked(last)
	}
	q.addLocked(last)
	if before == 0 {
		q.nudge()
	}
	return nil
}

func (q *queue) addLocked(req queued) {
	q.requests = append(q.requests, req)
	if req.of != firstOfTwo {
		q.owed.Add(1)
	}
}

// addNativeLocked adds the first of two commands, and returns what is still to be added.
func (q *queue) addNativeLocked(req queued) queued {
	command := req.native &^ (Look | Tried)
	if req.native != command {
		q.addLocked(queued{to: ignored{}, view: req.view, name: command.name(), native: command, of: firstOfTwo})
		req.of = secondOfTwo
	}
	switch {
	case req.native&Tried != 0:
		req.native = 0
		return req
	case req.native&Look != 0:
		command = Look
	}
	req.native, req.name = command, command.name()
	return req
}

// ignored receives the answers to ASKING, and the first of two.
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

func (q *queue) severed() bool {
	return context.Cause(q.life) == ErrClientClosed //nolint:errorlint // a sentinel
}

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

// cutAgain is how long no connection loads scripts, or carries native commands, after one has ended there, perhaps by
// chance.
const cutAgain = time.Minute

func (q *queue) loadsScripts() bool {
	at := q.cutAtScripts.Load()
	return at == nil || time.Since(*at) >= cutAgain
}

func (q *queue) finish() {
	q.mu.Lock()
	q.ending = true
	q.mu.Unlock()
	q.nudge()
}

func (q *queue) fail(requests []queued, r Reply) {
	for _, req := range requests {
		if req.of != firstOfTwo {
			q.owed.Add(-1)
		}
		req.to.Receive(req.tag, r)
	}
	q.mu.Lock()
	q.quiet = time.Now()
	q.mu.Unlock()
}
