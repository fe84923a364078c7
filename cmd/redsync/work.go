//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// This file gets the lock, and releases it. It knows nothing of processes.

// work does what the job says, and returns what the process ends with.
func (h *holder) work(ctx context.Context) (r result) {
	if err := h.job.nodes.read(); err != nil {
		return resultOf(err)
	}
	h.log.say = h.say
	if h.job.once && h.job.conflict == 0 { // in cron, which mails each line
		h.log.keep()
		defer func() {
			if r.err != nil {
				h.log.flush()
			}
		}()
	}
	h.job.nodes.sayUnverified(h.log.put)
	waits := time.Now().Add(h.job.wait)
	connecting, stop := h.job.patience(ctx)
	rs, err := h.job.nodes.connect(connecting, h.job.waitsForNodes(), h.log.put,
		redsync.WithLogger(slog.New(&logLines{say: h.log.put})), redsync.WithExpiry(h.job.ttl), redsync.WithTries(0))
	stop()
	if err != nil {
		return resultOf(err)
	}
	if h.job.leads {
		r = h.lead(ctx, rs)
	} else {
		r = h.hold(ctx, rs, time.Until(waits))
	}
	closing, end := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer end()
	if err := rs.Close(closing); err != nil {
		h.say("warning: " + err.Error())
	}
	return r
}

// resultOf returns the result for an error with an exit status.
func resultOf(err error) result {
	var f *failure
	if errors.As(err, &f) {
		return result{f.status, err}
	}
	return result{exitInternal, err}
}

// hold is run: it gets the lock, waits until COMMAND has ended, and releases the lock. left is what is left of --wait.
func (h *holder) hold(ctx context.Context, rs *redsync.Redsync, left time.Duration) result {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	options := append(h.job.options(), redsync.WithHooks((&denials{end: cancel}).hooks()))
	waits := !h.job.once && (h.job.wait < 0 || left > 0)
	if waits && h.job.wait > 0 {
		options = append(options, redsync.WithWait(left))
	}
	mutex := newMutex(rs, h.job.names, options...)
	var err error
	if waits {
		err = mutex.LockContext(waiting)
	}
	// There is one whole attempt at least, so that a lock that is free is not called taken.
	if !waits || h.job.wait > 0 && left < oneAttempt && errors.Is(err, redsync.ErrNoQuorum) {
		err = mutex.TryLockContext(ctx)
	}
	if err != nil {
		return h.notLocked(waiting, err)
	}
	h.log.flush()
	o := h.during(mutex)
	return h.unlock(ctx, mutex, o)
}

// oneAttempt is the longest time that an attempt waits for nodes on connections that are open.
const oneAttempt = 2 * time.Second

// waitsForNodes reports whether the job waits while no quorum answers at its start, as it does later. Without a limit it
// does not: the addresses may be wrong.
func (j *job) waitsForNodes() bool { return j.wait > 0 }

// patience returns a context for connecting, which ends when --wait has passed, but not before minConnect has.
func (j *job) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.wait <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, max(j.wait, minConnect))
}

// minConnect is how long the nodes have at least for their first answers. It is more than the time for which Ping waits for the
// slower ones once a quorum has answered.
const minConnect = time.Second

// notLocked returns the result of a lock that was not acquired.
func (h *holder) notLocked(ctx context.Context, err error) result {
	var denied *redsync.RedisError
	switch {
	case errors.Is(err, redsync.ErrNoQuorum) || errors.As(context.Cause(ctx), &denied):
		return result{exitNoQuorum, err}
	case errors.Is(err, redsync.ErrFailed) && h.job.wait > 0:
		return h.job.taken(fmt.Errorf("not free within --wait %v: %w", h.job.wait, err))
	case errors.Is(err, redsync.ErrFailed):
		return h.job.taken(err)
	case ctx.Err() != nil:
		return result{exitInternal, err} // the signal that has ended it decides
	}
	return result{exitUsage, err}
}

// taken returns the result if the lock is taken. With -E 0 that is no failure, and a line on stderr would make cron send a
// mail at each tick.
func (j *job) taken(err error) result {
	if j.conflict == 0 {
		return result{}
	}
	return result{j.conflict, err}
}

// during runs COMMAND while mutex is held.
func (h *holder) during(mutex *redsync.Mutex) outcome {
	t := &term{mutex, make(chan outcome, 1)}
	h.terms <- t
	o := <-t.done
	if o.awaitGone != nil {
		o.awaitGone() // before the release lets another process work
	}
	return o
}

// unlock releases the lock after COMMAND has ended with the outcome o.
func (h *holder) unlock(ctx context.Context, mutex *redsync.Mutex, o outcome) result {
	_, err := mutex.UnlockContext(context.WithoutCancel(ctx))
	return h.released(o, err)
}

// released returns the result of a COMMAND with the outcome o. err is that of the release.
func (h *holder) released(o outcome, err error) result {
	switch {
	case o.status == exitLost && o.err != nil:
	case errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.Is(err, redsync.ErrLockLost):
		return result{exitLost, fmt.Errorf("lost: %w", err)}
	case err != nil:
		h.say("warning: the release is not confirmed: " + err.Error())
	}
	return result{o.status, o.err}
}

// lead is lead: it runs COMMAND in each term.
func (h *holder) lead(ctx context.Context, rs *redsync.Redsync) result {
	for {
		var last outcome
		ran := false
		err := rs.Lead(ctx, h.job.names[0], func(ctx context.Context) error {
			last, ran = h.during(redsync.FromContext(ctx)), true
			return nil
		}, h.job.options()...)
		switch {
		case ran && last.status == exitLost && last.err != nil:
			continue // COMMAND was ended because no extension succeeded. One that came late has saved the leadership
		case ctx.Err() != nil && (!ran || errors.Is(err, context.Canceled)): // the signal that has ended it decides
			return result{status: exitInternal}
		case !ran && errors.Is(err, redsync.ErrNoQuorum):
			return result{exitNoQuorum, err}
		case !ran:
			return result{exitUsage, err}
		}
		return h.released(last, err)
	}
}
