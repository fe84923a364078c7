package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeadline(t *testing.T) {
	now := time.Now()
	for _, c := range cellsOf(`
		both clocks agree           | 50ms | 50ms | 50ms | 50ms
		far                         | 1h   | 1h   | 1h   | ` + patience.String() + `
		near                        | 10us | 10us | 10us | 1ms
		reached                     |      |      |      | 1ms
		passed                      | -1s  | -1s  | -1s  | 1ms
		the wall clock says so      | 1h   | -1m  | -1m  | 1ms
		the monotonic clock says so | -1m  | 1h   | -1m  | 1ms`) {
		d := deadline{now.Add(spanOf(c[1])), now.Round(0).Add(spanOf(c[2]))}
		if c[1] == c[2] {
			require.Equal(t, deadlineIn(now, spanOf(c[1])), d)
		}
		require.Equal(t, spanOf(c[3]), d.left(now), c[0])
		require.Equal(t, spanOf(c[4]), d.wait(now), c[0])
	}
	require.Equal(t, patience, deadline{}.wait(now)) // the zero deadline is never reached
}
