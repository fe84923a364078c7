//go:build !linux

package main

import "time"

// sleepExactly sleeps for d, exact to about 1 ms.
func sleepExactly(d time.Duration) { time.Sleep(d) }
