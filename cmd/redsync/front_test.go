//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFrontLooksTwiceIfItIsLate: what the holder has sent is read before COMMAND is killed, however short the front was stopped.
func TestFrontLooksTwiceIfItIsLate(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		looks  time.Duration // after the end of the lock
		slept  time.Duration // since it has looked last
		isOver bool
		again  time.Duration // when it looks next, if it is not over
	}{
		{"in time", 0, 100 * ms, true, 0},
		{"hardly late", punctual, 100 * ms, true, 0},
		{"late", 60 * ms, 160 * ms, false, 60 * ms},
		{"very late", time.Hour, time.Hour, false, grace},
		{"stopped until just now", 0, time.Hour, false, grace},
		{"before its end", -ms, time.Hour, false, ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			f := &frontProcess{deadline: deadlineIn(now, -c.looks), awake: now.Add(-c.slept)}
			require.Equal(t, c.isOver, f.isOver(now))
			if !c.isOver {
				assert.Equal(t, c.again, f.deadline.left(now))
				assert.True(t, f.isOver(now.Add(c.again)), "in time now")
			}
		})
	}
}
