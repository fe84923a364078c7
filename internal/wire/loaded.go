package wire

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file remembers which servers have the scripts: a program that makes a client for each lock would send little
// else.

// loadedFor is how long scripts count as loaded. A server that has lost them answers NOSCRIPT.
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

// addressKey is "" if a Dialer of the user's decides where the address leads.
func addressKey(user *redis.Options) string {
	if user.Addr == ofSentinel || !dialsItself(user) {
		return ""
	}
	return user.Network + " " + user.Addr
}

func loadedAt(address string) (l loading, is bool) {
	loaded.Lock()
	defer loaded.Unlock()
	l, is = loaded.at[address]
	return l, is && l.lasts() && l.scripts == len(knownScripts())
}

func (q *questions) note(server *Server, answers []any) {
	if q.address == "" || server == nil || server.RunID == "" || q.scripts == 0 {
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
	loaded.at[q.address] = loading{*server, q.scripts}
}

// isOf reports whether the process that answers now is that of l.
func (l loading) isOf(now *Server) bool {
	return now != nil && now.RunID == l.server.RunID && now.Uptime+time.Second >= now.At.Sub(l.server.At)
}
