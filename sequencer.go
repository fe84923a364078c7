package redsync

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// A Sequencer proves a hold to others. The holder sends it to a server along with a request. The
// server either asks the nodes whether the hold is still current, or keeps the highest token that
// it has seen. The idea and the word are Chubby's (Burrows, OSDI 2006).
//
// A Sequencer contains the lock's value: anybody who has it can extend and release the lock.
type Sequencer struct {
	Name  string
	Token uint64 // 0 without WithFencing
	Value string
}

// sequencerOf returns the Sequencer of h. The receiver of the Sequencer can extend and release the lock with
// the value. So h must not be handed over to a waiter: before the call, Mutex.Sequencer marks the value as
// shown, and Detach ends h.
func sequencerOf(h *lease.Lease) Sequencer {
	c := h.Claim()
	return Sequencer{Name: c.Name(), Token: h.Token(), Value: c.Value()}
}

// sequencerForm begins the text of a Sequencer.
const sequencerForm = "redsync1"

// String returns s as a text of letters, digits, -, _ and dots.
func (s Sequencer) String() string {
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		sequencerForm, encode([]byte(s.Name)), strconv.FormatUint(s.Token, 10), encode([]byte(s.Value)),
	}, ".")
}

// ParseSequencer reads what Sequencer.String returns.
func ParseSequencer(text string) (Sequencer, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 || parts[0] != sequencerForm {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: it must be %s.name.token.value", sequencerForm)
	}
	name, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its name: %w", err)
	}
	token, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its token: %w", err)
	}
	value, err := base64.RawURLEncoding.DecodeString(parts[3])
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its value: %w", err)
	}
	s := Sequencer{Name: string(name), Token: token, Value: string(value)}
	if s.String() != text {
		return Sequencer{}, errors.New("redsync: no sequencer: it is not as String writes it")
	}
	return s, nil
}
