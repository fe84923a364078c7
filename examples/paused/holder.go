package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
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

func (r report) tell() {
	line, _ := json.Marshal(r) // its fields cannot fail
	rig.Tell(string(line))
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
	write(ctx context.Context, key, text string) error
	unlock(ctx context.Context) error
}

// hold is the program of a holder. It locks, checks that it may write, waits, and writes without checking again. The
// pause happens between the check and the write.
func hold(ctx context.Context, j job) error {
	data := redis.NewClient(&redis.Options{Addr: j.Data})
	defer data.Close()
	h, err := open(ctx, j, data)
	var token uint64
	if err == nil {
		token, err = h.lock(ctx)
	}
	if err != nil {
		report{Step: failed, Err: err.Error()}.tell()
		return nil
	}
	left := h.left()
	if left <= 0 {
		report{Step: failed, Err: "it has no time left"}.tell()
		return nil
	}
	watch := startWatch()
	report{Step: locked, Token: token, Left: left}.tell()

	if rig.Ready() != nil {
		return nil // the program has ended: the holder must end without writing
	}
	err = h.write(ctx, j.key(), "written by "+j.Who)
	r := report{Step: wrote, Token: token, Paused: watch.stop()}
	if err != nil {
		r.Step, r.Err = failed, err.Error()
	}
	if errors.Is(err, fencing.ErrStale) {
		r.Step = refused
	}
	_ = h.unlock(ctx) // fails for A, whose lock has expired
	r.tell()
	return nil
}

// open returns the holder for j.
func open(ctx context.Context, j job, data *redis.Client) (holder, error) {
	if j.Library == thisLibrary {
		return openFenced(ctx, j.Nodes, j.name(), fencing.NewRedis(data))
	}
	var pools []rivalredis.Pool
	for _, address := range j.Nodes {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
	}
	return &unfenced{rival.New(pools...).NewMutex(j.name(), rival.WithExpiry(expiry), rival.WithTries(1000)), data}, nil
}

// An unfenced is a holder with a lock of redsync v4. It writes without a token.
type unfenced struct {
	mutex *rival.Mutex
	data  *redis.Client
}

func (h *unfenced) lock(ctx context.Context) (uint64, error) { return 0, h.mutex.LockContext(ctx) }

func (h *unfenced) left() time.Duration { return time.Until(h.mutex.Until()) }

func (h *unfenced) write(ctx context.Context, key, text string) error {
	return h.data.Set(ctx, key, text, 0).Err()
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
