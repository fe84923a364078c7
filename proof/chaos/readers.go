package main

import (
	"context"
	"errors"
	"strings"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines clients that become readers after writing, and writers of the same names with redsync v4.

// downgradingShort writes for a short time, and then reads for a short time.
func (c *client) downgradingShort() {
	c.writeThenRead(c.between(0, 15*ms), c.between(0, 60*ms))
}

// downgradingLong does the same with a watchdog. It writes for up to half of the job's expiry, and reads for up to one.
func (c *client) downgradingLong() {
	options := []redsync.Option{redsync.WithWatchdog()}
	if c.chance(3) {
		options = append(options, redsync.WithSetNXOnExtend())
	}
	c.writeThenRead(c.between(0, c.Expiry/2), c.between(0, c.Expiry), options...)
}

// writeThenRead locks, works, downgrades, and works on as a reader. In one case out of three it then locks once more
// with the same Mutex. That Lock is exclusive.
func (c *client) writeThenRead(write, read time.Duration, options ...redsync.Option) {
	t := c.beginAny(options...)
	if !t.writeThenRead(write, read) || !c.chance(3) {
		return
	}
	again := c.begin(t.on)
	again.m, again.expiry = t.m, t.expiry
	again.writeThenRead(write, 0)
}

// writeThenRead does so for one turn, and reports whether the lock was acquired.
func (t *turn) writeThenRead(write, read time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.ctx, lockTime)
	defer cancel()
	if !t.lock(ctx) {
		return false
	}
	defer t.unlock()
	if t.hold(write) {
		t.checkOver(ctx)
		return true
	}
	t.downgrade()
	told := t.hold(read)
	if !told && t.chance(3) {
		t.extend()
		told = t.hold(read)
	}
	if !told && t.chance(4) {
		t.downgrade()
		told = t.hold(read)
	}
	if told {
		t.checkOver(ctx)
	}
	return true
}

// downgrade makes the lock shared. In one case out of six its context may end before the nodes answer.
func (t *turn) downgrade() {
	ctx, cancel := context.WithTimeout(t.ctx, t.expiry)
	if t.chance(6) {
		cancel()
		ctx, cancel = t.soon()
	}
	defer cancel()
	if !t.stubborn {
		t.note(history.Event{Kind: history.Downgrade})
	}
	err := t.m.Downgrade(ctx)
	if err == nil {
		t.noteUntil()
	}
	if errors.Is(err, redsync.ErrNotHeld) {
		t.broken("the lock was acquired, but Downgrade returns %v", err)
	}
}

// upgrade stands in the error of an exclusive Lock inside a Do that holds the name shared.
const upgrade = "an exclusive lock within a shared one"

// checkUpgrade tries to lock the name as a writer, while the Do around ctx holds it as a reader. That must fail.
func (t *turn) checkUpgrade(ctx context.Context) {
	writer := t.on
	writer.reads = false
	m := writer.mutex(t.rs, append(writer.options(), redsync.WithExpiry(t.expiry))...)
	err := m.LockContext(ctx)
	if t.m.Remaining() > 0 && (!errors.Is(err, redsync.ErrNested) || !strings.Contains(err.Error(), upgrade)) {
		t.broken("within a Do that holds a shared lock an exclusive Lock returns %v", err)
	}
	if err == nil { // the shared hold is over, so this is no upgrade
		_, _ = m.UnlockContext(context.WithoutCancel(ctx)) // if this fails, the lock expires
	}
}

// theirs locks with redsync v4, which joins no queue. It makes a new Mutex for each attempt, so that each
// attempt has its own value. If attempts shared a value, a late release of one would delete the keys of the next one.
func (c *client) theirs() {
	const tries = 20
	c.term++
	t := &turn{client: c, number: c.term, on: c.pick(), expiry: c.expiryNow()}
	t.note(history.Event{Kind: history.Call})
	var m *rival.Mutex
	err := errors.New("the traffic has ended")
	for range tries {
		if c.ctx.Err() != nil {
			break
		}
		m = c.rival.NewMutex(t.on.name, rival.WithExpiry(t.expiry))
		if err = m.TryLockContext(c.ctx); err == nil {
			break
		}
		pause(c.ctx, c.between(5*ms, 100*ms))
	}
	if err != nil {
		t.note(history.Event{Kind: history.Refused, Err: text(err)})
		return
	}
	at := t.now()
	t.note(history.Event{At: at, Kind: history.Held, Until: at + time.Until(m.Until())})
	pause(c.ctx, c.between(0, 30*ms))
	if c.chance(4) {
		ok, _ := m.ExtendContext(c.ctx)
		at := t.now()
		if left := time.Until(m.Until()); ok && left > 0 {
			t.note(history.Event{At: at, Kind: history.Extended, Until: at + left})
		}
		pause(c.ctx, c.between(0, 30*ms))
	}
	t.note(history.Event{Kind: history.Unlock})
	ctx, cancel := context.WithTimeout(context.Background(), unlockTime)
	defer cancel()
	_, err = m.UnlockContext(ctx)
	t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
}

// openV4 returns a redsync v4 that uses the go-redis clients of the process.
func (c *crowd) openV4() *rival.Redsync {
	var pools []rivalredis.Pool
	for _, i := range c.Before {
		pools = append(pools, goredis.NewPool(c.redis[i]))
	}
	return rival.New(pools...)
}
