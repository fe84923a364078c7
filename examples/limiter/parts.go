package main

import (
	"fmt"
	"math"
	"sync"

	"github.com/seed14bd9ef4/redsync"
)

// The parts are what a weighted holds: the Mutexes of each size, the oldest first.
type parts struct {
	mu     sync.Mutex
	ofSize map[int64][]*redsync.Mutex
}

// add adds a Mutex, unless it could not be locked, and returns the error of the Lock.
func (p *parts) add(n int64, mutex *redsync.Mutex, err error) error {
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ofSize == nil {
		p.ofSize = make(map[int64][]*redsync.Mutex)
	}
	p.ofSize[n] = append(p.ofSize[n], mutex)
	return nil
}

// take removes the oldest part whose size is n, and returns its Mutex. It panics if there is no such part.
func (p *parts) take(n int64) *redsync.Mutex {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ofSize[n]) == 0 {
		panic(fmt.Sprintf("limiter: Release(%d): nothing acquired with Acquire(%[1]d) is held", n))
	}
	mutex := p.ofSize[n][0]
	p.ofSize[n] = p.ofSize[n][1:]
	return mutex
}

// weight returns n as an int, which may have 32 bits.
func weight(n int64) int { return int(min(max(n, math.MinInt32), math.MaxInt32)) }
