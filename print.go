package redsync

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/journal"
)

// This file writes locks and nodes for people. A lock's value is a secret: who has it can extend and release the
// lock. So no text shows it, except the text of a Sequencer, which is made for sending.

// Format writes the name, the state, and what is left of the time, such as redsync.Mutex("orders:17", held until
// 15:04:05.000, token 7), for every verb. It never writes the value. See LogValue for the states.
func (m *Mutex) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, m.shown().String()) }

// LogValue returns the name, the state, and the time and the token of the hold if there is one, for package slog. It never
// returns the value. The state is "idle", "held", "adopted" (with the value of another Mutex: see WithValue), or "over"
// (expired or lost).
func (m *Mutex) LogValue() slog.Value {
	s := m.shown()
	attrs := []slog.Attr{slog.String("name", s.Name), slog.String("state", s.State)}
	if !s.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", s.Until))
	}
	if s.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", s.Token))
	}
	return slog.GroupValue(attrs...)
}

// shownMutex is what people see of a Mutex.
type shownMutex struct {
	Name, State string
	Until       time.Time
	Token       uint64
}

func (m *Mutex) shown() shownMutex {
	if m == nil {
		return shownMutex{State: "nil"}
	}
	s := shownMutex{Name: journal.CutName(m.Name()), State: "idle"}
	h, adopted := m.holdOrAdopted()
	switch {
	case h != nil:
		s.State, s.Token, s.Until = "held", h.Token(), h.Until()
		if m.Err() != nil {
			s.State = "over"
		}
	case adopted != nil:
		s.State, s.Token = "adopted", adopted.sequencer.Token
	}
	return s
}

// String returns what Format writes.
func (s shownMutex) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redsync.Mutex(%q, %s", s.Name, s.State)
	if !s.Until.IsZero() {
		fmt.Fprintf(&b, " until %s", s.Until.Format("15:04:05.000"))
	}
	if s.Token != 0 {
		fmt.Fprintf(&b, ", token %d", s.Token)
	}
	b.WriteByte(')')
	return b.String()
}

// Format writes the nodes, for every verb.
func (r *Redsync) Format(f fmt.State, _ rune) {
	addresses := []string{}
	if r != nil && r.core != nil {
		for _, n := range r.core.keeper.Set.Nodes {
			addresses = append(addresses, n.Address())
		}
	}
	_, _ = fmt.Fprintf(f, "redsync.Redsync(%s)", strings.Join(addresses, ", "))
}

// Format writes the name and the token, for every verb. It does not write the value: String does.
func (s Sequencer) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "redsync.Sequencer(%s, token %d)", quoted(s.Name), s.Token)
}

// LogValue returns the name and the token, for package slog. It does not return the value: String does.
func (s Sequencer) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", journal.CutName(s.Name)), slog.Uint64("token", s.Token))
}
