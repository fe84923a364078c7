package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeadline(t *testing.T) {
	now := time.Now()
	in := func(at, wall time.Duration) deadline { return deadline{now.Add(at), now.Round(0).Add(wall)} }
	for _, c := range []struct {
		name       string
		deadline   deadline
		left, wait time.Duration
	}{
		{"both clocks agree", deadlineIn(now, 50*time.Millisecond), 50 * time.Millisecond, 50 * time.Millisecond},
		{"far", deadlineIn(now, time.Hour), time.Hour, patience},
		{"near", deadlineIn(now, 10*time.Microsecond), 10 * time.Microsecond, time.Millisecond},
		{"reached", deadlineIn(now, 0), 0, time.Millisecond},
		{"passed", deadlineIn(now, -time.Second), -time.Second, time.Millisecond},
		{"the wall clock says so", in(time.Hour, -time.Minute), -time.Minute, time.Millisecond},
		{"the monotonic clock says so", in(-time.Minute, time.Hour), -time.Minute, time.Millisecond},
	} {
		require.Equal(t, c.left, c.deadline.left(now), c.name)
		require.Equal(t, c.wait, c.deadline.wait(now), c.name)
	}
	require.Equal(t, patience, deadline{}.wait(now), "the zero deadline is never reached")
}
