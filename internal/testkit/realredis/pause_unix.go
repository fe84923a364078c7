//go:build unix

package realredis

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Pause stops a process with SIGSTOP; its connections stay open. On Linux it waits until the process has stopped, because
// on a busy machine the process may still run for some milliseconds after the signal.
func Pause(p *os.Process) error {
	err := p.Signal(syscall.SIGSTOP)
	if err == nil && runtime.GOOS == "linux" {
		err = awaitStopped(p)
	}
	return err
}

// awaitStopped waits until a process has stopped or ended.
func awaitStopped(p *os.Process) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if s := stateOf(p); s == "" || strings.Contains("TtZX", s) {
			return nil
		}
	}
	return fmt.Errorf("process %d does not stop within a minute", p.Pid)
}

// stateOf returns the letter that Linux shows for the state of a process: R for one that runs, T for one that is stopped. It
// returns "" if there is no such process.
func stateOf(p *os.Process) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
	_, after, _ := strings.Cut(string(text), ") ")
	if after == "" {
		return ""
	}
	return after[:1]
}

// Resume continues a process that Pause has stopped, with SIGCONT.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
