//go:build linux

package main

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// variable is in the environment of a test program, and of the processes that came of it.
const variable = "SLOW_RUN"

// A herd is a test program and the processes that came of it.
type herd struct {
	root int    // the process of the test program
	mark string // in the environment of its processes; a process whose parent has ended is known by it alone
}

type process struct{ pid, parent int }

// processes returns all processes that have not ended, by their numbers.
func processes() map[int]process {
	found := map[int]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file) //nolint:gosec // of the system
		p, state := process{}, 'X'
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		_, _ = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", &state, &p.parent) // behind the name
		if state != 'Z' && state != 'X' {
			found[p.pid] = p
		}
	}
	return found
}

// members returns the processes of the herd that have not ended. Parents come before their children.
func (h *herd) members() (members []int) {
	all := processes()
	known := map[int]bool{}
	add := func(belongs func(process) bool) (some bool) {
		for pid, p := range all {
			if !known[pid] && belongs(p) {
				members, known[pid], some = append(members, pid), true, true
			}
		}
		return some
	}
	isChild := func(p process) bool { return p.pid == h.root || known[p.parent] }
	isOrphan := func(p process) bool { return h.marked(p.pid) && !h.marked(p.parent) }
	for add(isChild) || add(isOrphan) {
	}
	return members
}

// marked reports whether a process has the mark of the herd.
func (h *herd) marked(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return slices.Contains(strings.Split(string(text), "\x00"), h.mark)
}

// disturb stops the herd as pauses say, until ended is closed. It returns how often.
func (h *herd) disturb(pauses iter.Seq[pause], ended <-chan struct{}) (stops int) {
	sleep := func(d time.Duration) (goesOn bool) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ended:
			return false
		}
	}
	for p := range pauses {
		if !sleep(p.run) {
			return stops
		}
		stopped := h.stop()
		stops++
		sleep(p.stop)
		resume(stopped)
	}
	return stops
}

// stop stops the processes of the herd, and returns those that it has stopped. A parent is stopped before its children, and
// has stopped when they are looked at: it cannot stop them meanwhile, nor start others.
func (h *herd) stop() (stopped []int) {
	seen := map[int]bool{}
	for more := true; more; {
		more = false
		for _, pid := range h.members() {
			if seen[pid] {
				continue
			}
			seen[pid], more = true, true
			if state, pending := look(pid); !isStill(state) && !pending && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				stopped = append(stopped, pid)
				awaitStill(pid)
			}
		}
	}
	return stopped
}

// resume continues processes. Children come before their parents: a parent must not see that a child is stopped.
func resume(stopped []int) {
	for _, pid := range slices.Backward(stopped) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// kill ends what the test program has left.
func (h *herd) kill() {
	for _, pid := range h.members() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// look returns the letter that Linux shows for the state of a process, 0 if there is none, and whether a SIGSTOP is pending.
func look(pid int) (state byte, pending bool) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) //nolint:gosec // of the system
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch name {
		case "State":
			state = value[0]
		case "SigPnd", "ShdPnd":
			signals, _ := strconv.ParseUint(value, 16, 64)
			pending = pending || signals&(1<<(syscall.SIGSTOP-1)) != 0
		}
	}
	return state, pending
}

// isStill reports whether the state is that of a process that is stopped, or has ended.
func isStill(state byte) bool { return state == 0 || strings.IndexByte("TtZX", state) >= 0 }

// awaitStill waits until a process is still, but not for long: one that waits for a disk stops later.
func awaitStill(pid int) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) { //nolint:forbidigo // the system does not tell
		if state, _ := look(pid); isStill(state) {
			return
		}
	}
}
