package embedded

import (
	"slices"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/seed14bd9ef4/redsync/internal/nonsense"
)

// This file is what a node says beside what it executes: how it answers greetings, and
// what nonsense it talks. SELECT may be refused by a rule of On.

// SetUser lets a user in by that password from now on, and by no other. Connections that
// there are stay. The default user stays open: it needs no password, as in a Redis with
// "user default on nopass". Miniredis itself, which is asked as long as there is no user
// here (RequireUserAuth), closes it as soon as there is another.
func (n *Node) SetUser(name, password string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.users == nil {
		n.users = make(map[string]string)
	}
	n.users[name] = password
}

// greet answers HELLO and AUTH. Whose credentials are wrong stays the default user.
func (n *Node) greet(peer *server.Peer, command string, args []string) {
	at := -1 // AUTH itself has nothing before its arguments
	if command == "HELLO" {
		at = slices.IndexFunc(args, func(arg string) bool { return strings.EqualFold(arg, "auth") })
	}
	switch rest := args[at+1:]; {
	case !n.hasUsers() || command == "HELLO" && at < 0:
	case len(rest) < 2 || !n.knows(rest[0], rest[1]):
		peer.WriteError("WRONGPASS invalid username-password pair or user is disabled.")
		return
	case command == "AUTH":
		peer.WriteOK()
		return
	default:
		args = slices.Concat(args[:at], rest[2:]) // Miniredis knows no users
	}
	n.execute(peer, 0, command, args)
}

func (n *Node) hasUsers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.users) > 0
}

func (n *Node) knows(user, password string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, ok := n.users[user]
	return ok && known == password
}

// selects executes a SELECT, and remembers it for scripts and for what is executed twice.
func (n *Node) selects(peer *server.Peer, from client, args []string) {
	if db, err := strconv.Atoi(args[0]); err == nil && db >= 0 {
		from.db = db
		n.peers.Store(peer, from)
	}
	n.execute(peer, from.db, "SELECT", args)
}

// Babble makes the node talk nonsense when it says something the next time, and so on: a
// reply, or a message to a subscriber, on whatever connection. What it replies to is
// executed.
func (n *Node) Babble(bursts ...nonsense.Outburst) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bursts = append(n.bursts, bursts...)
}

// twisted returns what the node says in place of p, and what it does then.
func (n *Node) twisted(p []byte) (said []byte, then nonsense.Then) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.bursts) == 0 {
		return p, nonsense.GoOn
	}
	b := n.bursts[0]
	n.bursts = n.bursts[1:]
	if b.After {
		return slices.Concat(p, []byte(b.Bytes)), b.Then
	}
	return []byte(b.Bytes), b.Then
}

// hangs notes that the node says no more on a connection, until Heal closes it.
func (n *Node) hangs(s *speaker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = append(n.mute, s)
}
