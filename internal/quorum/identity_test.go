package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows that a set knows which of its nodes are one server, and what a node knows of itself.

func TestMeetFindsTwoNodesThatAreOneServer(t *testing.T) {
	s := newScene(4)
	a, b := &pool.Server{RunID: "a"}, &pool.Server{RunID: "b"}
	pair := func() []int {
		d := s.Duplicate()
		if d == nil {
			return nil
		}
		return []int{d.A.Index, d.B.Index}
	}
	s.NoteServer(0, nil)
	s.NoteServer(0, a)
	s.NoteServer(1, b)
	s.NoteServer(1, b)
	assert.Nil(t, pair())
	s.NoteServer(3, &pool.Server{RunID: "b"})
	assert.Equal(t, []int{1, 3}, pair())
	s.NoteServer(3, nil)
	assert.Equal(t, []int{1, 3}, pair(), "an answer of an unknown server says nothing")
	s.NoteServer(1, &pool.Server{RunID: "c"})
	assert.Nil(t, pair(), "its address leads elsewhere by now")
	s.NoteServer(2, a)
	assert.Equal(t, []int{0, 2}, pair())
	s.Forget()
	assert.Nil(t, pair())
	s.NoteServer(2, a)
	assert.Nil(t, pair(), "the other one has not answered since")
	s.NoteServer(0, a)
	assert.Equal(t, []int{0, 2}, pair())
}

// A met pool says whether its client has met the node before.
type met struct {
	*puppet.Puppet
	before bool
	asked  int
}

func (m *met) MetBefore() bool {
	m.asked++
	return m.before
}

func TestOneAcquireIntroduces(t *testing.T) {
	for name, c := range map[string]struct {
		pools []pool.Pool
		want  bool
	}{
		"nobody has met them":   {[]pool.Pool{&met{}, &met{}}, true},
		"all are known":         {[]pool.Pool{&met{before: true}, &met{before: true}}, false},
		"one is not":            {[]pool.Pool{&met{}, &met{before: true}}, true},
		"one does not tell":     {[]pool.Pool{&met{before: true}, &puppet.Puppet{}}, true},
		"the last has been met": {[]pool.Pool{&puppet.Puppet{}, &met{before: true}}, true},
	} {
		s := setOf(c.pools...)
		assert.Equal(t, c.want, s.FirstToIdentify(), name)
		assert.False(t, s.FirstToIdentify(), "%s: the second", name)
		for i, p := range c.pools {
			if m, ok := p.(*met); ok {
				assert.Equal(t, 1, m.asked, "%s: node %d", name, i)
			}
		}
	}
}

func TestIntroductionLeavesTheCallerHalfOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, time.Second, IdentifyTimeout(t.Context(), time.Second))
		for left, want := range map[time.Duration]time.Duration{
			time.Hour: time.Second, 2 * time.Second: time.Second, time.Second: 500 * time.Millisecond, -time.Second: -500 * time.Millisecond,
		} {
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(left))
			assert.Equal(t, want, IdentifyTimeout(ctx, time.Second), "%v left", left)
			cancel()
		}
	})
}

func TestNodeThatDeniesQueuesIsAskedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newScene(1).Nodes[0]
		assert.False(t, n.Denies())
		assert.True(t, n.Deny())
		assert.True(t, n.Denies())
		time.Sleep(deniedFor - 1)
		assert.True(t, n.Denies())
		time.Sleep(time.Nanosecond)
		assert.False(t, n.Denies())
		assert.False(t, n.Deny(), "it has been told before")
		assert.True(t, n.Denies())
	})
}

// A lame pool can never send.
type lame struct{ *puppet.Puppet }

func (lame) Err() error { return errors.New("it has no client") }

func TestPoolsOfNoUseAreSeen(t *testing.T) {
	require.EqualError(t, Unusable(nil), "it is nil")
	require.EqualError(t, Unusable(lame{}), "it has no client")
	require.NoError(t, Unusable(&puppet.Puppet{}))
	s := setOf(nil, lame{}, &puppet.Puppet{})
	for i, address := range []string{"", "", "puppet"} {
		assert.Equal(t, i, s.Nodes[i].Index)
		assert.Equal(t, address, s.Nodes[i].Address)
	}
}
