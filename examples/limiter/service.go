package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// A service is slow, and should not get too many calls at once. It counts the calls.
type service struct {
	server http.Server
	addr   string

	mu     sync.Mutex
	now    int // calls under way
	most   int // the most calls that were under way at once
	served int // calls that have ended
	hung   int // calls of the path hang
	gone   int // calls of the path hang that have ended, because their callers are gone
}

// callTime is how long a call takes.
const callTime = 20 * time.Millisecond

// hang is the path of calls that end only when their callers are gone.
const hang = "/hang"

func startService() (*service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{addr: listener.Addr().String()}
	s.server.Handler = s
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

func (s *service) close() { _ = s.server.Close() }

// ServeHTTP implements http.Handler. A call ends when its time is over, or when its caller is gone.
func (s *service) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	var over <-chan time.Time
	if r.URL.Path == hang {
		s.hung++
	} else {
		over = time.After(callTime)
	}
	s.mu.Unlock()
	select {
	case <-over:
	case <-r.Context().Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	s.served++
	if over == nil {
		s.gone++
	}
}

// call calls the service at addr.
func call(ctx context.Context, addr, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
