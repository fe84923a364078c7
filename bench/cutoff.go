package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// cutExpiry is short, because each measurement first waits for one and a half expiries.
const cutExpiry = 4 * time.Second

var cutOffScene = scene{
	name: "cutoff",
	about: fmt.Sprintf("A holder extends its lock. One and a half expiries of %v after Lock it is cut off from all nodes: "+
		"the proxy between them is stopped. Another client, which is not cut off, waits for the lock. Times are since the "+
		"cut. Told before is the time from when the old holder is told that its lock is lost until the next holder has it. "+
		"If it is negative, both clients believed that they held the lock, for that long.", cutExpiry),
	columns: []column{
		{title: "holder told ms", key: "told", format: whole},
		{title: "next holder ms", key: "next", format: whole},
		{title: "told before ms", key: "ahead", format: whole},
	},
	cells: func(p plan) []cell {
		if p.quick {
			return nil
		}
		list := named(oursWatched, oneKey)
		cells := grid("cutoff", "", []int{1}, list, measureCutOff)
		for i := range cells {
			cells[i].rounds = 3
		}
		return cells
	},
}

func measureCutOff(ctx context.Context, l *lab, c cell) (f figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*cutExpiry)
	defer cancel()
	r, err := startRemote(ctx, l.addrs, make([]time.Duration, nodes))
	if err != nil {
		return nil, err
	}
	proxy := r.child.cmd.Process
	defer func() { err = errors.Join(err, realredis.Resume(proxy), r.close()) }()
	holder, err := c.contender.start(ctx, r.addrs, cutExpiry)
	if err != nil {
		return nil, err
	}
	defer func() { _ = realredis.Resume(proxy); err = errors.Join(err, holder.Close()) }()
	waiter, err := c.contender.start(ctx, l.addrs, cutExpiry)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, waiter.Close()) }()

	key := freshKey()
	lock, err := holder.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	time.Sleep(cutExpiry * 3 / 2)
	if err := realredis.Pause(proxy); err != nil {
		return nil, err
	}
	cut := time.Now()
	next := make(chan time.Duration, 1)
	go func() {
		for ctx.Err() == nil {
			if theirs, err := waiter.Lock(ctx, key); err == nil {
				next <- time.Since(cut)
				_ = unlock(ctx, theirs)
				return
			}
		}
		close(next)
	}()
	select {
	case <-lossOf(lock):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f = figures{"told": float64(time.Since(cut).Milliseconds())}
	took, acquired := <-next
	if !acquired {
		return nil, fmt.Errorf("the waiter did not acquire the lock that its holder lost: %w", ctx.Err())
	}
	f["next"] = float64(took.Milliseconds())
	f["ahead"] = f["next"] - f["told"]
	return f, nil
}

// lossOf returns the channel that is closed when lock is lost.
func lossOf(lock held) <-chan struct{} {
	if m, ok := lock.(*redsync.Mutex); ok {
		return m.Lost()
	}
	return lock.(interface{ gone() <-chan struct{} }).gone()
}
