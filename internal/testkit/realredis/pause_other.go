//go:build !unix

package realredis

import (
	"errors"
	"os"
)

var errNoPause = errors.New("realredis: this system has no signal that pauses a process")

// Pause and Resume fail on this system.
func Pause(*os.Process) error  { return errNoPause }
func Resume(*os.Process) error { return errNoPause }
