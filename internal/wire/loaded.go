package wire

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file remembers which servers have the scripts. A program may make a client for each lock, and then the scripts
// would be most of what it sends.

// loadedFor is how long scripts count as loaded. If somebody has flushed them, the server answers NOSCRIPT.
const loadedFor = 10 * time.Second

var loaded struct {
	sync.Mutex // guards at
	at         map[string]loading
}

// A loading says that a server has loaded so many scripts.
type loading struct {
	server  Server
	scripts int
}

func (l loading) lasts() bool {
	since := time.Since(l.server.At)
	return since >= 0 && since < loadedFor
}

// addressKey stands for the address of a client, "" if a Dialer of the user's decides where it leads.
func addressKey(user *redis.Options) string {
	if user.Addr == ofSentinel || !dialsItself(user) {
		return ""
	}
	return user.Network + " " + user.Addr
}

// loadedAt returns the recent loading of all scripts at an address.
func loadedAt(address string) (l loading, is bool) {
	loaded.Lock()
	defer loaded.Unlock()
	l, is = loaded.at[address]
	return l, is && l.lasts() && l.scripts == len(knownScripts())
}

// note remembers that server has loaded the scripts of q.
func (q *questions) note(address string, server *Server, answers []any) {
	if address == "" || server == nil || server.RunID == "" || q.scripts == 0 {
		return
	}
	for _, answer := range answers[len(answers)-q.scripts:] {
		if _, refused := answer.(error); refused {
			return
		}
	}
	loaded.Lock()
	defer loaded.Unlock()
	for other, l := range loaded.at {
		if !l.lasts() {
			delete(loaded.at, other)
		}
	}
	if loaded.at == nil {
		loaded.at = make(map[string]loading)
	}
	loaded.at[address] = loading{*server, q.scripts}
}

// isOf reports whether the server that answers now is that of l, and the same process.
func (l loading) isOf(now *Server) bool {
	return now != nil && now.RunID == l.server.RunID && now.Uptime+time.Second >= now.At.Sub(l.server.At)
}

// askAgain asks all questions, the scripts included, of a server that is not that of the loading.
func askAgain(ctx context.Context, cn *redis.Conn, q *questions) (*Server, error) {
	return askServer(ctx, cn, q, &ownConn{})
}
