package lease

// A signal is a channel that is closed at most once. It is created by the first call of channel, which may
// come after close. The caller of a method must hold the mutex that guards the signal.
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
