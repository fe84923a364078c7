//go:build unix && !linux

package main

import "syscall"

// diesWithHolder does nothing: there is no such signal. COMMAND goes on if the holder is killed in the moment in which it
// starts COMMAND.
func diesWithHolder(*syscall.SysProcAttr) {}

func adopts()                        {}
func children() []int                { return nil }
func (f *frontProcess) killAdopted() {}
