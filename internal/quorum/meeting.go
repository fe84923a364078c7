package quorum

import (
	"context"
	"time"
)

// Identify asks the nodes of joint sets which servers they are, if two may be one: a wrong address must not help the
// first acquire to win. Other calls wait, each for its own IdentifyTimeout.
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
		case <-others: // if its context cut that call short, this one asks
		case <-timer.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// ask returns the channel of the call that asks in others. If there is none, the caller must ask, and close own.
func (k *identity) ask() (others <-chan struct{}, own chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking != nil {
		return k.asking, nil
	}
	k.asking = make(chan struct{})
	return nil, k.asking
}

// identify asks the nodes, and closes done. The next call asks again if ctx ends this one too early.
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

// maxIdentify bounds that wait. A duplicate found later counts once from then on.
const maxIdentify = 400 * time.Millisecond

// IdentifyTimeout returns how long an operation may wait to learn which servers the nodes are: at most maxIdentify, the
// node deadline, and half of ctx's time.
func IdentifyTimeout(ctx context.Context, nodeTimeout time.Duration) time.Duration {
	timeout := min(nodeTimeout, maxIdentify)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	return timeout
}
