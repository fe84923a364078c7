package lease

// A signal is a channel that is closed once, and made when somebody asks for it. Its methods are called
// with a lock held.
type signal struct {
	c      chan struct{}
	closed bool
}

func (s *signal) close() {
	if s.c != nil && !s.closed {
		close(s.c)
	}
	s.closed = true
}

func (s *signal) channel() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
		if s.closed {
			close(s.c)
		}
	}
	return s.c
}
