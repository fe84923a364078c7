package main

import "syscall"

// diesWithHolder makes a COMMAND die if the holder does. The front does that, too, and for the whole group, but it does not
// know the process before the holder has reported it.
func diesWithHolder(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
