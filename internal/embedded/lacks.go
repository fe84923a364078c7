package embedded

import (
	"fmt"
	"strings"
)

// A Lack is why clients cannot use a command.
type Lack uint8

// Why clients cannot use a command.
const (
	Has     Lack = iota // they can
	Missing             // the server does not have it, as after rename-command
	Denied              // their user may not run it
	Closing             // a proxy ends the connection at it; scripts are on the server, and can use it
)

// Lacks makes clients and scripts unable to use commands, until it is called again for them. The words are those of Redis 7.
func (n *Node) Lacks(how Lack, commands ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lacks == nil {
		n.lacks = make(map[string]Lack)
	}
	for _, c := range commands {
		n.lacks[strings.ToUpper(c)] = how
	}
}

// Lacks does that on all nodes.
func (ns Nodes) Lacks(how Lack, commands ...string) {
	for _, n := range ns {
		n.Lacks(how, commands...)
	}
}

// fault returns what happens to a command of a client.
func (how Lack) fault(name string, args []string) Fault {
	switch how {
	case Missing:
		said := fmt.Sprintf("ERR unknown command '%s', with args beginning with: ", name)
		for _, arg := range args {
			said += fmt.Sprintf("'%.*s' ", max(0, 128-len(said)), arg)
		}
		return Fault{Err: said}
	case Denied:
		return Fault{Err: fmt.Sprintf("NOPERM User default has no permissions to run the '%s' command", strings.ToLower(name))}
	case Closing:
		return Fault{LoseCommand: true}
	}
	return Fault{}
}

// scriptLacks returns why a script cannot use a command, nil if it can.
func (n *Node) scriptLacks(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.lacks) == 0:
	case n.lacks[strings.ToUpper(name)] == Missing:
		return lackError("ERR Unknown Redis command called from script")
	case n.lacks[strings.ToUpper(name)] == Denied:
		return lackError("ERR ACL failure in script: User default has no permissions to run the '" + strings.ToLower(name) + "' command")
	}
	return nil
}

// A lackError is why a script cannot use a command.
type lackError string

func (e lackError) Error() string { return string(e) }
