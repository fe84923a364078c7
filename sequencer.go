package redsync

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Sequencer proves a lock to others. The holder sends it to a server along with a request, and the server asks the
// nodes whether it is current, or keeps the highest token that it has seen. With Mutex.Detach and WithSequencer, a
// Sequencer passes a lock to another process.
//
// A SEQUENCER CONTAINS THE LOCK'S VALUE: anybody who has it can extend and release the lock. String and packages such
// as encoding/json write all of it. Packages fmt and log/slog show the name and the token alone, but not for a value
// that contains a Sequencer.
//
// Two Sequencers of one lock are equal by ==, unless it was downgraded, or another reader has left it, in between.
type Sequencer struct {
	Name  string // of the Mutex
	Token uint64 // 0 without WithFencing
	Value string

	// Mode says how the lock is held, as the text of the Sequencer does: "" is a plain lock. Leave it as it is.
	Mode string
}

// The modes of a Sequencer.
const (
	modePlain   = ""        // one name, exclusively
	modeNames   = "names"   // several names, exclusively; then "-" and the length of each name, in bytes
	modeRead    = "read"    // one name, shared
	modeReaders = "readers" // one name, shared; other readers of the process have the same hold, so nobody can adopt it
	modePermits = "permits" // permits of one name; then the n of WithPermits and the slots that are held: see permitsMode
)

// namesSeparator stands between the names of a lock on several names, in the name of its Mutex.
const namesSeparator = ", "

// sequencerOf returns the Sequencer of h. The receiver of the Sequencer can extend and release the lock with
// the value, so h must not be handed over to a waiter. For that, Mutex.Sequencer marks the value as shown
// before the call, and Detach ends h.
func sequencerOf(h *lease.Lease) Sequencer {
	c := h.Claim()
	if p, ok := c.(*claim.Permit); ok {
		return Sequencer{Name: p.Name(), Value: c.Value(), Mode: permitsMode(p.Permits.Permits(), p.Slots())}
	}
	s := sequencerOfNames(c.Lines(), h.Token(), c.Value())
	switch {
	case !c.Shares():
	case h.IsAlone(false):
		s.Mode = modeRead
	default:
		s.Mode = modeReaders
	}
	return s
}

// sequencerOfNames returns the Sequencer of an exclusive hold on these names. With one name it is
// that of a plain lock.
func sequencerOfNames(names []string, token uint64, value string) Sequencer {
	s := Sequencer{Name: strings.Join(names, namesSeparator), Token: token, Value: value}
	if len(names) < 2 {
		return s
	}
	mode := []byte(modeNames)
	for _, name := range names {
		mode = strconv.AppendInt(append(mode, '-'), int64(len(name)), 10)
	}
	s.Mode = string(mode)
	return s
}

// Names returns the names that the hold of s covers: one, unless the lock is on several names. It returns nil
// for the zero Sequencer.
func (s Sequencer) Names() []string {
	if names, ok := s.cut(); ok {
		return names
	}
	if s.Name == "" {
		return nil
	}
	return []string{s.Name}
}

// isUnder reports whether all names of s begin with prefix.
func (s Sequencer) isUnder(prefix string) bool {
	return !slices.ContainsFunc(s.Names(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// cut returns the names of a lock on several names. It reports false for a plain lock, and if the user has
// changed the name of s, so that the lengths do not fit.
func (s Sequencer) cut() (names []string, ok bool) {
	lengths, ok := lengthsOf(s.Mode)
	if !ok {
		return nil, false
	}
	rest := s.Name
	for i, n := range lengths {
		if i > 0 {
			if rest, ok = strings.CutPrefix(rest, namesSeparator); !ok {
				return nil, false
			}
		}
		if n > len(rest) {
			return nil, false
		}
		names, rest = append(names, rest[:n]), rest[n:]
	}
	return names, rest == ""
}

// lengthsOf returns the lengths of the names in a mode. It reports false unless mode is that of several
// names, as sequencerOfNames writes it.
func lengthsOf(mode string) (lengths []int, ok bool) {
	parts := strings.Split(mode, "-")
	if parts[0] != modeNames || len(parts) < 3 {
		return nil, false
	}
	for _, part := range parts[1:] {
		n, err := strconv.Atoi(part)
		if err != nil || strconv.Itoa(n) != part { // n is not negative: no part has a minus
			return nil, false
		}
		lengths = append(lengths, n)
	}
	return lengths, true
}

// permitsMode returns the mode of a Sequencer whose hold has these slots of a semaphore with n permits. For
// slots 0 and 2 of three it is permits-3-0-2.
func permitsMode(n int, slots script.Slots) string {
	mode := strconv.AppendInt([]byte(modePermits+"-"), int64(n), 10)
	for slot := range slots.All() {
		mode = strconv.AppendInt(append(mode, '-'), int64(slot), 10)
	}
	return string(mode)
}

// parsePermitsMode reads a mode that permitsMode has written. It reports false for any other text.
func parsePermitsMode(mode string) (n int, slots script.Slots, ok bool) {
	all := strings.Split(strings.TrimPrefix(mode, modePermits+"-"), "-") // no number has a minus
	n, err := strconv.Atoi(all[0])
	if err != nil || n > script.MaxPermits {
		return 0, slots, false
	}
	for _, number := range all[1:] {
		slot, err := strconv.Atoi(number)
		if err != nil || slot >= n {
			return 0, slots, false
		}
		slots = slots.With(slot)
	}
	return n, slots, slots.Len() > 0 && permitsMode(n, slots) == mode
}

// What the text of a Sequencer begins with.
const (
	sequencerForm     = "redsync1" // of a plain lock: then the name, the token and the value
	sequencerModeForm = "redsync2" // of other locks: then the mode, the name, the token and the value
)

// String returns s as a text of letters, digits, -, _ and dots. The text contains the value, so it is as secret as that.
func (s Sequencer) String() string {
	form := sequencerForm
	if s.Mode != modePlain {
		form = sequencerModeForm + "." + s.Mode
	}
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		form, encode([]byte(s.Name)), strconv.FormatUint(s.Token, 10), encode([]byte(s.Value)),
	}, ".")
}

// ParseSequencer reads what Sequencer.String returns.
func ParseSequencer(text string) (Sequencer, error) {
	parts, mode := strings.Split(text, "."), modePlain
	switch {
	case len(parts) == 4 && parts[0] == sequencerForm:
	case len(parts) == 5 && parts[0] == sequencerModeForm:
		mode, parts = parts[1], parts[1:]
		_, names := lengthsOf(mode)
		_, _, permits := parsePermitsMode(mode)
		if !names && !permits && mode != modeRead && mode != modeReaders {
			return Sequencer{}, errors.New("redsync: no sequencer: this version does not know the mode of the lock")
		}
	default:
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: it must be %s.name.token.value or %s.mode.name.token.value",
			sequencerForm, sequencerModeForm)
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
	s := Sequencer{Name: string(name), Token: token, Value: string(value), Mode: mode}
	if s.String() != text {
		return Sequencer{}, errors.New("redsync: no sequencer: it is not as String writes it")
	}
	return s, nil
}

// MarshalText returns the text of String, with the value.
func (s Sequencer) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets s to what ParseSequencer returns. If the text is not that of a Sequencer,
// UnmarshalText returns an error and leaves s as it is.
func (s *Sequencer) UnmarshalText(text []byte) error {
	parsed, err := ParseSequencer(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// joinNames returns the name of a lock on these names.
func joinNames(names []string) string { return strings.Join(names, namesSeparator) }

// distinct returns names sorted, each once.
func distinct(names []string) []string {
	all := slices.Clone(names)
	slices.Sort(all)
	return slices.Compact(all)
}

// Format writes the name and the token, for every verb. It does not write the value: String does.
func (s Sequencer) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "redsync.Sequencer(%s, token %d)", quoted(s.Name), s.Token)
}

// LogValue returns the name and the token, for package slog. It does not return the value: String does.
func (s Sequencer) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", journal.CutName(s.Name)), slog.Uint64("token", s.Token))
}
