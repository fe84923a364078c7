package lease

// A signal is a channel that is closed at most once. It is created by the first call of channel. The caller of a method
// must hold the mutex that guards the signal.
type signal struct{ c chan struct{} }

// close closes the channel, if there is one.
func (s *signal) close() {
	select {
	case <-s.c: // it is closed
	default:
		if s.c != nil {
			close(s.c)
		}
	}
}

// channel returns the channel. closed says that close has been called, perhaps before there was a channel.
func (s *signal) channel(closed bool) <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	if closed {
		s.close()
	}
	return s.c
}
