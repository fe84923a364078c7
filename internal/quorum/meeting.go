package quorum

import (
	"context"
	"time"
)

// This file asks the nodes which servers they are, where an operation must know before it begins. What they answer is kept
// by identity.go.

// Identify asks the nodes of joint sets which servers they are, if two of them may be one server. One call asks; calls
// that come meanwhile wait for it, each for its own IdentifyTimeout at most. Without Identify the first acquire would
// ask such a server twice, and the server would refuse the second time. Identify reports whether it has waited.
func (s *Set) Identify(ctx context.Context, nodeTimeout time.Duration) (waited bool) {
	if s.IsIdentified() {
		return false
	}
	timer := time.NewTimer(IdentifyTimeout(ctx, nodeTimeout))
	defer timer.Stop()
	for !s.IsIdentified() {
		others, own := s.identity.ask()
		if own != nil {
			s.identify(ctx, nodeTimeout, own)
			return true
		}
		select {
		case <-others: // if that call was cut short by its context, this one asks
		case <-timer.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// ask returns in others the channel of the call that asks the nodes. If no call does, it returns a new channel in own:
// then the caller must ask the nodes, and close own.
func (k *identity) ask() (others <-chan struct{}, own chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking != nil {
		return k.asking, nil
	}
	k.asking = make(chan struct{})
	return nil, k.asking
}

// identify asks the nodes, and closes done. If ctx leaves less time than the node deadline, and no quorum answers in
// that time, the next call asks again.
func (s *Set) identify(ctx context.Context, nodeTimeout time.Duration, done chan struct{}) {
	known, complete := s.identity, false
	defer func() {
		known.mu.Lock()
		known.asking = nil
		known.complete.Store(complete)
		known.mu.Unlock()
		close(done)
	}()
	timeout := IdentifyTimeout(ctx, nodeTimeout)
	res := s.Start(ctx, Ping{}, true).Wait(ctx, Limits{Decide: timeout, Node: timeout})
	complete = res.Won || timeout == min(nodeTimeout, maxIdentify) && ctx.Err() == nil
}

// maxIdentify is how long at most an operation waits to learn which server each node is. A duplicate that is found later
// counts once from then on.
const maxIdentify = 400 * time.Millisecond

// IdentifyTimeout returns how long at most an operation waits to learn which server each node is: maxIdentify, the node
// deadline, or half of the time that ctx has left, whichever is least. The caller needs the other half for its work
// with the lock.
func IdentifyTimeout(ctx context.Context, nodeTimeout time.Duration) time.Duration {
	timeout := min(nodeTimeout, maxIdentify)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	return timeout
}
