package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// diesWithHolder makes a COMMAND die if the holder does. The front does that, too, and for the whole group, but it does not
// know the process before the holder has reported it.
func diesWithHolder(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// adopts makes this process the parent of what loses its parent below it: COMMAND when the holder dies, and what COMMAND
// leaves behind.
func adopts() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// children returns the processes whose parent this process is, nil if the kernel does not tell.
func children() (pids []int) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%s/children", task.Name()))
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killAdopted kills COMMAND and its group if the dead holder has started it, but not reported it. They are the children that
// this process did not have before COMMAND began. In the foreground COMMAND has no group of its own: then its children come to
// this process one by one.
func (f *frontProcess) killAdopted() {
	if !f.begun || f.command != 0 {
		return
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for range 100 {
		found := false
		for _, pid := range children() {
			if f.had[pid] {
				continue
			}
			found = true
			if group, err := unix.Getpgid(pid); err == nil && group != unix.Getpgrp() {
				pid = -group
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if f.reap(); !found {
			return
		}
		<-look.C
	}
}
