package lease

// A signal is a channel that is closed once, and made when somebody asks for it. Its methods are called
// with a lock held.
type signal struct {
	c     chan struct{}
	given bool
}

func (s *signal) give() {
	if s.c != nil && !s.given {
		close(s.c)
	}
	s.given = true
}

func (s *signal) channel() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
		if s.given {
			close(s.c)
		}
	}
	return s.c
}
