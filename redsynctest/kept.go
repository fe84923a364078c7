package redsynctest

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file finds the keys that an Unlock has left for the rest of a minimal hold (redsync.WithMinHold). They are not left
// behind: they run out by themselves. The request that shortens them shows which they are, whichever Redsync has sent it.

// shorten is the digest of the script that lets keys last for the rest of a minimal hold.
var shorten = sync.OnceValue(func() string {
	key := script.KeysOf("x")
	sha, _ := script.Shorten(key.Lock("x"), 1, script.Process{}, script.Turnover{}, script.Fence{}).Args[1].(string)
	return sha
})

// A kept holds the keys that Unlocks have left, with their values.
type kept struct {
	mu sync.Mutex // guards of
	of map[[2]string]bool
}

// note notes the keys that requests for a node leave for the rest of a minimal hold.
func (k *kept) note(requests []byte) {
	sha := shorten()
	if !bytes.Contains(requests, []byte(sha)) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[[2]string]bool{}
	}
	for len(requests) > 0 {
		var words []string
		if words, requests = nextRequest(requests); len(words) < 4 || words[1] != sha {
			continue
		}
		n, _ := strconv.Atoi(words[2])
		if keys := words[3:]; 0 < n && n < len(keys) {
			for _, key := range keys[:n] {
				k.of[[2]string{key, keys[n]}] = true
			}
		}
	}
}

// has reports whether an Unlock has left a key with that value for the rest of a minimal hold.
func (k *kept) has(key, value string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.of[[2]string{key, value}]
}

// nextRequest returns the words of the first request, and the other requests. It returns no words and no requests if p does not
// begin with a request.
func nextRequest(p []byte) (words []string, rest []byte) {
	number := func(kind byte) (n int, ok bool) {
		line, after, found := bytes.Cut(p, []byte("\r\n"))
		if !found || len(line) < 2 || line[0] != kind {
			return 0, false
		}
		n, err := strconv.Atoi(string(line[1:]))
		p = after
		return n, err == nil && n >= 0
	}
	count, ok := number('*')
	for range count {
		n, is := number('$')
		if ok = ok && is && n+2 <= len(p); !ok {
			return nil, nil
		}
		words, p = append(words, string(p[:n])), p[n+2:]
	}
	if !ok {
		return nil, nil
	}
	return words, p
}
