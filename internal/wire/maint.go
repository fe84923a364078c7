package wire

import (
	"cmp"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file heeds notifications of maintenance, as Redis Enterprise and cloud services push them: the endpoint moves, a
// failover begins. go-redis heeds them on its own connections, so a connection of the pool asks for them, too, if the
// user's client does (Protocol 3, and a MaintNotificationsConfig whose Mode is not disabled; both are defaults).
//
// The connection then greets with HELLO 3, as the user's client does. The node is asked in a round trip that is made
// anyway, so a node without notifications costs nothing but an error reply. If the user's own client has met such a node,
// it has stopped asking, and the pool stops with it.

const (
	// A new connection is tried so often, and so long after a failure. go-redis tries as often, and pauses longer. The old
	// connection serves meanwhile.
	moveTries = 3
	movePause = 500 * time.Millisecond

	// moveWait is how long requests wait for the old connection to answer what it owes, at least, once the new connection
	// is there. The wait is longer if opening the new one took longer.
	moveWait = 100 * time.Millisecond

	// maxPushes bounds how many pushes may come without a reply between them. No node sends so many.
	maxPushes = 1000

	// latestMove bounds the time after which a node may ask to move.
	latestMove = time.Hour
)

// A heed says which notifications a user's client heeds.
type heed struct {
	wanted   bool
	must     bool          // a node without notifications is of no use to the client
	endpoint string        // the type of the addresses that a node names
	relaxed  time.Duration // the read timeout during maintenance
}

func heedOf(user *redis.Client) heed {
	if user.Options().Protocol != 3 || user.GetMaintNotificationsManager() == nil {
		return heed{}
	}
	// go-redis changes the Mode while it connects. WithTimeout returns a copy of the options, made under the mutex.
	config := user.WithTimeout(0).Options().MaintNotificationsConfig
	if !config.IsEnabled() {
		return heed{}
	}
	return heed{
		wanted: true, must: config.Mode == maintnotifications.ModeEnabled,
		endpoint: cmp.Or(config.EndpointType.String(), "none"), relaxed: config.RelaxedTimeout,
	}
}

// on returns what is heeded of a node that has been greeted. Like go-redis it asks nothing of a node that has refused HELLO:
// some proxies end the connection at a command that they do not know.
func (h heed) on(greeted *ownConn) (heed, error) {
	switch {
	case !greeted.refusedHello:
		return h, nil
	case h.must:
		return heed{}, errors.New("the node does not send notifications of maintenance, which the client demands: it has refused HELLO")
	}
	return heed{}, nil
}

// command returns the command that asks for notifications.
func (h heed) command() []byte {
	b, _ := AppendCommand(nil, h.args()) // strings
	return b
}

func (h heed) args() []any {
	return []any{"client", "maint_notifications", "on", "moving-endpoint-type", h.endpoint}
}

// moveOf returns what a MOVING says: to which address to move, "" for the address of the client, and after what time.
// Then the client's address leads elsewhere, so go-redis waits for half of the time that the node gives.
func moveOf(p push) (to string, after time.Duration, is bool) {
	if len(p) < 3 || p[0] != maintnotifications.NotificationMoving {
		return "", 0, false
	}
	_, numbered := p[1].(int64)
	seconds, timed := p[2].(int64)
	if !numbered || !timed || seconds < 0 || seconds > int64(latestMove/time.Second) {
		return "", 0, false
	}
	if len(p) > 3 && p[3] != nil {
		if to, is = p[3].(string); !is {
			return "", 0, false
		}
	}
	if to == "" || to == "<nil>" {
		return "", time.Duration(seconds/2) * time.Second, true
	}
	if _, _, err := net.SplitHostPort(to); err != nil {
		to = net.JoinHostPort(to, "6379")
	}
	return to, 0, true
}

// A movedError ends the connection of a subscription whose client goes elsewhere.
type movedError struct{ to string } // "" for the client's own address

func (e *movedError) Error() string { return "the node has asked to move" }
