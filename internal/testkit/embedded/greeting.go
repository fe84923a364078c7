package embedded

import (
	"slices"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
)

// This file adds to a node what Miniredis lacks: users in greetings, and badreply. It also notes the
// database that each connection selects.

// SetUser sets the password of a user. Existing connections stay. The default user still needs no
// password, as in a Redis with "user default on nopass". Miniredis cannot do that: once it has a user
// (RequireUserAuth), it demands a password from everybody. Before the first SetUser, Miniredis
// itself answers greetings.
func (n *Node) SetUser(name, password string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.users == nil {
		n.users = make(map[string]string)
	}
	n.users[name] = password
}

// greet answers HELLO and AUTH. After wrong credentials a connection still acts as the default user.
func (n *Node) greet(peer *server.Peer, command string, args []string) {
	at := -1 // for AUTH, where all args are credentials
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
		args = slices.Concat(args[:at], rest[2:]) // without the credentials: Miniredis does not know the user
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

// selects executes a SELECT, and remembers the database for scripts and for executeUnanswered.
func (n *Node) selects(peer *server.Peer, from client, args []string) {
	if db, err := strconv.Atoi(args[0]); err == nil && db >= 0 {
		from.db = db
		n.peers.Store(peer, from)
	}
	n.execute(peer, from.db, "SELECT", args)
}

// Babble makes the node send nonsense: the first of bursts replaces the data that the node sends
// next, or follows it (Outburst.After). The second applies to the data after that, and so on. The
// data may be replies or messages to subscribers, on any connection. The node still executes the
// commands.
func (n *Node) Babble(bursts ...badreply.Outburst) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bursts = append(n.bursts, bursts...)
}

// twisted returns what the node sends instead of p, and what it does afterwards.
func (n *Node) twisted(p []byte) (said []byte, then badreply.Then) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.bursts) == 0 {
		return p, badreply.GoOn
	}
	b := n.bursts[0]
	n.bursts = n.bursts[1:]
	if b.After {
		return slices.Concat(p, []byte(b.Bytes)), b.Then
	}
	return []byte(b.Bytes), b.Then
}

// hangs notes that the node sends nothing more on a connection, until Heal closes it.
func (n *Node) hangs(s *speaker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = append(n.mute, s)
}
