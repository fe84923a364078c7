package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/fencing"
)

// The values of Library in a job.
const (
	thisLibrary = "this library"
	redsyncV4   = "redsync v4"
)

// A job tells a holder what to do: lock with a library, and write the data.
type job struct {
	Who, Library string
	Nodes        []string // addresses
	Data         string   // address
	Expiry       time.Duration
}

// of returns the job for the holder named who.
func (j job) of(who string) job {
	j.Who = who
	return j
}

// name returns the name of the lock, and key returns the key of the data. Both differ between the
// libraries.
func (j job) name() string { return "lock of the order, " + j.Library }
func (j job) key() string  { return "order, " + j.Library }

// A step is what a holder reports.
type step string

const (
	locked  step = "locked"  // it has the lock, and time left
	wrote   step = "wrote"   // its write went through
	refused step = "refused" // its write was refused because of its token
	failed  step = "failed"  // it could not lock or write, for any other reason
)

// A report is a line from a holder to the process that started it.
type report struct {
	Step   step
	Token  uint64
	Left   time.Duration // of the lock's validity
	Paused time.Duration // the longest time in which the process did not run
	Err    string
}

func (r report) String() string {
	switch r.Step {
	case wrote:
		return "it goes through"
	case refused, failed:
		return fmt.Sprintf("%s: %s", r.Step, r.Err)
	case locked:
		return "it has the lock"
	}
	return "it ended without a word"
}

// A holder holds a lock, and writes the protected data.
type holder interface {
	lock(ctx context.Context) (token uint64, err error)
	left() time.Duration
	write(ctx context.Context, text string) error
	unlock(ctx context.Context) error
}

// hold is the program of a holder. It locks, checks that it may write, waits for a line from in,
// and writes without checking again. The pause happens between the check and the write.
func hold(ctx context.Context, text string, in io.Reader, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	say := func(r report) { _ = json.NewEncoder(out).Encode(r) } // the reader may be gone
	h, closeAll := open(j)
	defer closeAll()
	token, err := h.lock(ctx)
	if err != nil {
		say(report{Step: failed, Err: err.Error()})
		return nil
	}
	left := h.left()
	if left <= 0 {
		say(report{Step: failed, Err: "it has no time left"})
		return nil
	}
	watch := startWatch()
	say(report{Step: locked, Token: token, Left: left})

	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return nil //nolint:nilerr // in was closed: the holder must end without writing
	}
	err = h.write(ctx, "written by "+j.Who)
	r := report{Step: wrote, Token: token, Paused: watch.stop()}
	if err != nil {
		r.Step, r.Err = failed, err.Error()
	}
	if errors.Is(err, fencing.ErrStale) {
		r.Step = refused
	}
	_ = h.unlock(ctx) // fails for A, whose lock has expired
	say(r)
	return nil
}

// open returns the holder for j, and a function that closes it.
func open(j job) (holder, func()) {
	var clients []*redis.Client
	for _, address := range append(j.Nodes, j.Data) {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: address}))
	}
	closeAll := func() {
		for _, c := range clients {
			c.Close()
		}
	}
	data := clients[len(j.Nodes)]
	if j.Library == thisLibrary {
		return &fenced{job: j, data: fencing.NewRedis(data)}, closeAll
	}
	var pools []rivalredis.Pool
	for _, c := range clients[:len(j.Nodes)] {
		pools = append(pools, goredis.NewPool(c))
	}
	mutex := rival.New(pools...).NewMutex(j.name(), rival.WithExpiry(j.Expiry), rival.WithTries(1000))
	return &unfenced{job: j, mutex: mutex, data: data}, closeAll
}

// A fenced is a holder with a lock of this library. It writes through a guard.
type fenced struct {
	job
	data  *fencing.Redis
	rs    *redsync.Redsync
	mutex *redsync.Mutex
	token uint64
}

func (h *fenced) lock(ctx context.Context) (uint64, error) {
	var err error
	if h.rs, err = redsync.Open(ctx, h.Nodes); err != nil {
		return 0, err
	}
	h.mutex = h.rs.NewMutex(h.name(), redsync.WithFencing(), redsync.WithExpiry(h.Expiry), redsync.WithTries(0))
	if err := h.mutex.LockContext(ctx); err != nil {
		return 0, err
	}
	h.token = h.mutex.Fence()
	return h.token, nil
}

func (h *fenced) left() time.Duration { return h.mutex.Remaining() }

func (h *fenced) write(ctx context.Context, text string) error {
	return h.data.Set(ctx, h.key(), text, h.token, 0)
}

func (h *fenced) unlock(ctx context.Context) error {
	_, err := h.mutex.UnlockContext(ctx)
	return errors.Join(err, h.rs.Close(ctx))
}

// An unfenced is a holder with a lock of redsync v4. It writes without a token.
type unfenced struct {
	job
	mutex *rival.Mutex
	data  *redis.Client
}

func (h *unfenced) lock(ctx context.Context) (uint64, error) { return 0, h.mutex.LockContext(ctx) }

func (h *unfenced) left() time.Duration { return time.Until(h.mutex.Until()) }

func (h *unfenced) write(ctx context.Context, text string) error {
	return h.data.Set(ctx, h.key(), text, 0).Err()
}

func (h *unfenced) unlock(ctx context.Context) error {
	_, err := h.mutex.UnlockContext(ctx)
	return err
}

// read returns the data of j.
func read(ctx context.Context, j job) (string, error) {
	c := redis.NewClient(&redis.Options{Addr: j.Data})
	defer c.Close()
	if j.Library == thisLibrary {
		text, _, err := fencing.NewRedis(c).Get(ctx, j.key())
		return text, err
	}
	return c.Get(ctx, j.key()).Result()
}

// A watch measures the longest time in which the process did not run.
type watch struct {
	done    chan struct{}
	longest chan time.Duration
}

func startWatch() *watch {
	w := &watch{make(chan struct{}), make(chan time.Duration, 1)}
	go w.run(time.Now()) // reads the clock here, because the goroutine may start only after the pause
	return w
}

func (w *watch) run(last time.Time) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var longest time.Duration
	for running := true; running; last = time.Now() {
		select {
		case <-w.done:
			running = false
		case <-tick.C:
		}
		longest = max(longest, time.Since(last))
	}
	w.longest <- longest
}

// stop ends w, and returns the longest pause.
func (w *watch) stop() time.Duration {
	close(w.done)
	return <-w.longest
}
