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
// failover begins. A connection asks for them, at no extra round trip, if the user's client does (Protocol 3, and a
// MaintNotificationsConfig whose Mode is not disabled). Once the client has met a node without them, both stop asking.

const (
	// A new connection is tried so often, and so long after a failure.
	moveTries = 3
	movePause = 500 * time.Millisecond

	// moveWait is how long, at least, requests wait for answers of the old connection once the new one is there.
	moveWait = 100 * time.Millisecond

	maxPushes = 1000

	latestMove = time.Hour
)

// A heed says which notifications a user's client heeds.
type heed struct {
	wanted   bool
	must     bool          // a node without them is of no use
	endpoint string        // which addresses a node names
	relaxed  time.Duration // the read timeout during maintenance
}

func heedOf(user *redis.Client) heed {
	if user.Options().Protocol != 3 || user.GetMaintNotificationsManager() == nil {
		return heed{}
	}
	// go-redis changes the Mode while it connects, under a mutex that WithTimeout locks.
	config := user.WithTimeout(0).Options().MaintNotificationsConfig
	if !config.IsEnabled() {
		return heed{}
	}
	return heed{
		wanted: true, must: config.Mode == maintnotifications.ModeEnabled,
		endpoint: cmp.Or(config.EndpointType.String(), "none"), relaxed: config.RelaxedTimeout,
	}
}

// on returns what is heeded of a greeted node. Like go-redis it asks nothing of a node that has refused HELLO: some
// proxies end the connection at an unknown command.
func (h heed) on(greeted *ownConn) (heed, error) {
	switch {
	case !greeted.refusedHello:
		return h, nil
	case h.must:
		return heed{}, errors.New("the node does not send notifications of maintenance, which the client demands: it has refused HELLO")
	}
	return heed{}, nil
}

func (h heed) args() []any {
	return []any{"client", "maint_notifications", "on", "moving-endpoint-type", h.endpoint}
}

// moveOf returns what a MOVING says: where to move, and after what time. to is "" for the client's own address. That
// leads elsewhere only later, so go-redis waits for half of the time.
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

// A movedError ends the connection of a subscription that moves.
type movedError struct{ to string } // "" for the client's own address

func (e *movedError) Error() string { return "the node has asked to move" }
